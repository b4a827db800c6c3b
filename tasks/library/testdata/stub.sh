#!/bin/sh
# Stands in for every tool of newRecorder: it notes its name and its arguments.
{ printf '%s\0' "${0##*/}" "$@"; printf '\0'; } >>"$CALLS"
