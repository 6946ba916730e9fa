#!/bin/sh
# Usage: files.sh BINARY DIRECTORY
# Makes a new directory with the files of a container: the binary, the libraries that it needs (none, if it is linked
# statically), and a directory for the data that belongs to the user 65534, if this runs as root.
set -eu
binary=$1 root=$2
mkdir "$root"
install -D -m 755 "$binary" "$root/usr/local/bin/platform-server"
# The loader is printed without an arrow, and the part of the kernel without a path. ldd fails for a static binary.
ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 755 "$library" "$root$library"
done || true
install -d -m 1777 "$root/tmp"
install -d -m 700 "$root/var/lib/platform"
if [ "$(id -u)" = 0 ]; then
  chown 65534:65534 "$root/var/lib/platform"
fi
