#!/bin/sh
# Usage: files.sh BINARY DIRECTORY
# Makes a new directory with root/, the files of a container: the binary and the libraries that it needs (none, if it is
# linked statically), and with data/, the empty directory for the data.
set -eu
binary=$1 root=$2/root data=$2/data
mkdir "$2" "$root"
install -D -m 755 "$binary" "$root/usr/local/bin/platform-server"
# The loader is printed without an arrow, and the part of the kernel without a path. ldd fails for a static binary.
ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 755 "$library" "$root$library"
done || true
install -d -m 1777 "$root/tmp"
install -d -m 700 "$data"
