#!/bin/sh
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" /run/postgresql
    chmod 700 "$PGDATA"
    chown -R postgres "$PGDATA" /run/postgresql
    exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --no-sync --auth=trust --username=postgres >/dev/null
fi
exec "$@"
