#!/bin/sh
# Makes the user of the service, unless it exists.
set -e
getent passwd ramus >/dev/null || useradd --system --home-dir /var/lib/ramus --shell /usr/sbin/nologin --user-group ramus
