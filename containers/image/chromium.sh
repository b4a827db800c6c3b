#!/bin/sh
# Installs Debian's Chromium without a window, and the fonts that pictures are
# drawn with, while an image is built. Both images with a browser run it, so that a
# page looks the same in both.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q

# Chromium's packages and ffmpeg's ask for tools and drivers of a desktop, 190 MB of Mesa
# and LLVM that a browser without a window never opens. This empty package replaces them.
stub="$(mktemp -d)"
mkdir "$stub/DEBIAN"
cat >"$stub/DEBIAN/control" <<'CONTROL'
Package: ramus-no-desktop
Version: 1
Architecture: all
Maintainer: ramus <ramus@localhost>
Provides: x11-utils, xdg-utils, libgl1-mesa-dri
Description: replaces parts of a desktop that a browser without a window does not run
CONTROL
dpkg-deb --build "$stub" "$stub.deb"
dpkg -i "$stub.deb"

apt-get install -q -y --no-install-recommends \
    ca-certificates chromium-headless-shell fonts-dejavu-core fonts-liberation fonts-noto-color-emoji
# Text that names no font, or one that is not here, is drawn with these: which ones
# must not depend on the order in which files were found.
cat >/etc/fonts/local.conf <<'XML'
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <alias><family>sans-serif</family><prefer><family>Liberation Sans</family><family>DejaVu Sans</family><family>Noto Color Emoji</family></prefer></alias>
  <alias><family>serif</family><prefer><family>Liberation Serif</family><family>DejaVu Serif</family><family>Noto Color Emoji</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>Liberation Mono</family><family>DejaVu Sans Mono</family><family>Noto Color Emoji</family></prefer></alias>
</fontconfig>
XML

rm -f /usr/lib/chromium/libVkLayer_* /usr/lib/chromium/libVkICD_mock_* /usr/lib/chromium/*.TOC /usr/local/share/ca-certificates/.keep
update-ca-certificates
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /var/log/*.log /var/log/apt "$stub" "$stub.deb"
/usr/lib/chromium/chromium-headless-shell --version
