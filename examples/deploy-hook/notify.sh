#!/bin/sh
# Reports a deployed commit to a ramus server, so that new work starts from it. Run
# the script after the deploy. Its failure must not fail the deploy.
#
#   RAMUS_URL            address of the server, https://ramus.example.org
#   RAMUS_DEPLOY_SECRET  secret of the signatures, hooks.deploy_secret_… on the server
#   RAMUS_REPO           name of the repository on the server
#   DEPLOY_COMMIT        the deployed commit, all 40 digits
#   DEPLOY_IMAGE         digest of the deployed image (optional)
#   DEPLOY_SCHEMA        hash of the generated client or schema (optional)
#   DEPLOY_ENVIRONMENT   environment of the deploy (optional), such as dev
#
# The script needs openssl and curl. The secret is an argument of openssl, so other
# users of the machine can see it in the list of processes.
set -eu

: "${RAMUS_URL:?}" "${RAMUS_DEPLOY_SECRET:?}" "${RAMUS_REPO:?}" "${DEPLOY_COMMIT:?}"

# The values are checked here instead of being quoted for JSON.
field() {
	case $2 in
	*[!A-Za-z0-9._:@/+-]*)
		echo "notify: $1 has characters that are not allowed: $2" >&2
		exit 2
		;;
	'') ;;
	*) printf ',"%s":"%s"' "$1" "$2" ;;
	esac
}
body=$(
	field repo "$RAMUS_REPO"
	field commit "$DEPLOY_COMMIT"
	field image_digest "${DEPLOY_IMAGE:-}"
	field schema_hash "${DEPLOY_SCHEMA:-}"
	field environment "${DEPLOY_ENVIRONMENT:-}"
	field deployed_at "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
)
body="{${body#,}}"
now=$(date +%s)
signature=$(printf 'v0:%s:%s' "$now" "$body" | openssl dgst -sha256 -hmac "$RAMUS_DEPLOY_SECRET" | sed 's/^.*= *//')

# The same message may arrive twice, because the server recognises it.
printf %s "$body" | curl -sS --fail-with-body --max-time 20 --retry 3 --retry-connrefused -X POST \
	-H 'Content-Type: application/json' -H "X-Ramus-Timestamp: $now" -H "X-Ramus-Signature: v0=$signature" \
	--data-binary @- "${RAMUS_URL%/}/hooks/deploy"
echo
