#!/bin/sh
# Sends an event to a trigger, as its sender does, and prints the answer and the status.
#
#   RAMUS_URL=https://ramus.example.org SECRET_FILE=secret send.sh NAME SIGNATURE <event.json
#
# SIGNATURE is ramus, sentry, pagerduty or github, as in the trigger's webhook. It needs curl and openssl.
set -eu
name=$1 signature=$2
body=$(mktemp)
trap 'rm -f "$body"' EXIT
cat >"$body"

# The secret is shown in the list of processes of this machine while openssl runs.
digest() { openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(tr -d '\n' <"$SECRET_FILE" | od -An -v -tx1 | tr -d ' \n')" | sed 's/^.*= *//'; }

at=$(date +%s)
case $signature in
ramus) set -- -H "X-Ramus-Timestamp: $at" -H "X-Ramus-Signature: v0=$({ printf 'v0:%s:' "$at"; cat "$body"; } | digest)" ;;
sentry) set -- -H "Sentry-Hook-Resource: event_alert" -H "Sentry-Hook-Timestamp: $at" -H "Sentry-Hook-Signature: $(digest <"$body")" ;;
pagerduty) set -- -H "X-PagerDuty-Signature: v1=$(digest <"$body")" ;;
github) set -- -H "X-Hub-Signature-256: sha256=$(digest <"$body")" ;;
*) echo "unknown signature: $signature" >&2; exit 2 ;;
esac
curl -sS -w '%{http_code}\n' -H 'Content-Type: application/json' "$@" --data-binary @"$body" "$RAMUS_URL/hooks/$name"
