#!/bin/sh
# Replaces every tool of newRecorder, and notes its name and its arguments.
{ printf '%s\0' "${0##*/}" "$@"; printf '\0'; } >>"$CALLS"
