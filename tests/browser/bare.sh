#!/bin/sh
# Make a folder that has the browser of the tests and nothing of this machine but its C library and
# libgcc: no programs, fonts or configuration. Print the path of a program that runs the browser
# with this folder as its root. Needs root and x86-64 Linux.
#
#     INTERLOCK_CHROMIUM=$(sh tests/browser/bare.sh build/browser build/bare) pytest tests/browser
set -eu
browser=$(realpath "$1")
mkdir -p "$2"
bare=$(realpath "$2")
libraries=lib/x86_64-linux-gnu
mkdir -p "$bare/lib64" "$bare/$libraries" "$bare/tmp" "$bare/proc" "$bare/dev/shm" "$bare/browser"
cp -L /lib64/ld-linux-x86-64.so.2 "$bare/lib64/"
for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1; do
  cp -L "/$libraries/$name" "$bare/$libraries/"
done
cp -r "$browser/lib" "$browser/fonts" "$browser/locales" "$browser/fonts.conf" "$bare/browser/"
cp "$browser/chromium" "$bare/browser/"
[ -e "$bare/dev/null" ] || mknod -m 666 "$bare/dev/null" c 1 3
[ -e "$bare/dev/urandom" ] || mknod -m 666 "$bare/dev/urandom" c 1 9
cat > "$bare/run" <<END
#!/bin/sh
export LD_LIBRARY_PATH=/browser/lib FONTCONFIG_PATH=/browser HOME=/tmp
exec unshare --mount --pid --fork --kill-child --mount-proc="$bare/proc" \\
  chroot "$bare" /browser/chromium "\$@"
END
chmod +x "$bare/run"
echo "$bare/run"
