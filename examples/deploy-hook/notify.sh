#!/bin/sh
# Tells a ramus server that a commit was deployed, so that new work starts from
# it. Run it after the deploy, and let its failure be no failure of the deploy.
#
#   RAMUS_URL            where the server is: https://ramus.example.org
#   RAMUS_DEPLOY_SECRET  what messages are signed with: hooks.deploy_secret_… there
#   RAMUS_REPO           the repository's name on the server
#   DEPLOY_COMMIT        the commit that was deployed, all of its 40 digits
#   DEPLOY_IMAGE         digest of the image that was deployed (optional)
#   DEPLOY_SCHEMA        hash of the generated client or schema (optional)
#   DEPLOY_ENVIRONMENT   where it was deployed (optional): dev
#
# Needs openssl and curl. The secret is an argument of openssl: on a machine that
# strangers can log in to, they could see it in the list of processes.
set -eu

: "${RAMUS_URL:?}" "${RAMUS_DEPLOY_SECRET:?}" "${RAMUS_REPO:?}" "${DEPLOY_COMMIT:?}"

# What goes into the message is checked here instead of being quoted for JSON.
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

# The same message may arrive twice: the server knows it again.
printf %s "$body" | curl -sS --fail-with-body --max-time 20 --retry 3 --retry-connrefused -X POST \
	-H 'Content-Type: application/json' -H "X-Ramus-Timestamp: $now" -H "X-Ramus-Signature: v0=$signature" \
	--data-binary @- "${RAMUS_URL%/}/hooks/deploy"
echo
