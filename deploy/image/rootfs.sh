#!/bin/sh
# Make the root file system of the image: Debian's Python and the packages, no shell and no apt.
#
#     rootfs.sh PACKAGES ROOT
#
# PACKAGES is a folder of installed packages of Python, ROOT the folder to make, in which `chroot` must
# work. This needs mmdebstrap, binutils and the rights of root.
set -eu
packages=$1
root=$2

# The C++ library is for greenlet, without which SQLAlchemy cannot be imported. The hook keeps what
# scanners read about each package; the packages are extracted, and none of their scripts runs.
mmdebstrap --quiet --variant=extract --include=python3.11,libstdc++6,ca-certificates,tzdata \
    --extract-hook='set -e
        about=$1/var/lib/dpkg/status.d
        mkdir -p "$about"
        for package in "$1"/var/cache/apt/archives/*.deb; do
            dpkg-deb --field "$package" > "$about/$(dpkg-deb --field "$package" Package)"
        done' \
    bookworm "$root"

cd "$root"
find bin sbin usr/bin usr/sbin usr/share/doc -mindepth 1 \
    ! -type d ! -name python3.11 ! -name copyright -delete
rm -rf usr/share/man usr/share/locale usr/share/perl5 usr/share/bash-completion var/lib/apt var/log/* \
    usr/lib/*/gconv usr/lib/python3.11/test usr/lib/python3.11/pydoc_data
ln -s python3.11 usr/bin/python3
cat usr/share/ca-certificates/mozilla/*.crt > etc/ssl/certs/ca-certificates.crt

mkdir -p data etc/interlock usr/local/bin usr/local/lib/python3.11
chmod 1777 tmp
chown 65532:65532 data
chmod 700 data
printf '%s\n' root:x:0:0:root:/:/nologin interlock:x:65532:65532:interlock:/data:/nologin > etc/passwd
printf '%s\n' root:x:0: interlock:x:65532: > etc/group

cp -R "$packages" usr/local/lib/python3.11/dist-packages
rm -rf usr/local/lib/python3.11/dist-packages/bin
find usr/local -name '*.so' -exec strip --strip-debug {} +
printf '%s\n' '#!/usr/bin/python3' 'from interlock.cli import main' '' 'main()' > usr/local/bin/interlock
chmod 755 usr/local/bin/interlock
chmod -R go+rX usr/local
# Nothing can be compiled later, because the root is read-only.
chroot . /usr/bin/python3 -X no_debug_ranges -m compileall -q --invalidation-mode unchecked-hash \
    /usr/lib/python3.11 /usr/local/lib/python3.11
