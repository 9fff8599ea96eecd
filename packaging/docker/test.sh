#!/bin/sh
# Runs the program $2 as an image by the Dockerfile $1 would: as the first process of its container, as its user, without other
# files than the certificate. Then it replaces the program. Run by `cargo xtask test --only package`, as root.
set -eu
fail() { echo "FAILED: $*"; exit 1; }
ok() { echo "ok $*"; }
entry() { sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$1" | sed -n "s/^$2 \[\(.*\)\]/\1/p" | tr -d '",'; }

box=/run/image
mkdir -p $box/etc/taut $box/proc $box/dev
install -m 0755 "$2" $box/taut
# A program that is not static, as the tests build it, needs its libraries.
if ldd "$2" > /tmp/libraries 2> /dev/null; then
    grep -o '/[^ ]*' /tmp/libraries | while read -r library; do
        mkdir -p "$box$(dirname "$library")"
        cp -L "$library" "$box$library"
    done
fi
touch $box/dev/null $box/dev/urandom
mount --bind /dev/null $box/dev/null
mount --bind /dev/urandom $box/dev/urandom
$box/taut cert --dir /run/made localhost 127.0.0.1 > /dev/null
user=$(sed -n 's/^USER //p' "$1")
install -o "${user%:*}" -g "${user#*:}" -m 0400 /run/made/cert.pem /run/made/key.pem $box/etc/taut
ip link set lo up

# shellcheck disable=SC2046,SC2016
unshare --pid --fork --kill-child sh -c 'mount -t proc proc /run/image/proc; exec "$@"' container \
    chroot --userspec="$user" $box $(entry "$1" ENTRYPOINT) $(entry "$1" CMD) > /tmp/served 2> /tmp/log &
runtime=$!
tries=0
until grep -q '^listening on wss://0.0.0.0:8443' /tmp/served; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "it does not listen: $(cat /tmp/served /tmp/log)"
    kill -0 $runtime 2> /dev/null || fail "it has ended: $(cat /tmp/served /tmp/log)"
    sleep 0.1
done
first=$(tr -d ' ' < /proc/$runtime/task/$runtime/children)
ok "the image serves"

{ echo before; until [ -e /run/upgraded ]; do sleep 0.1; done; echo after; } \
    | $box/taut connect --ca /run/made/ca.pem --wait 60 wss://localhost:8443/ > /run/said &
client=$!
tries=0
until grep -q before /run/said; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "it does not echo"
    sleep 0.1
done
cp $box/taut $box/taut.new
mv $box/taut.new $box/taut
# As `docker exec` runs it.
nsenter --pid --root --wd --target "$first" /taut upgrade 1 2> /tmp/refused || fail "no upgrade: $(cat /tmp/refused /tmp/log)"
touch /run/upgraded
wait $client || fail "the connection has ended"
[ "$(cat /run/said)" = "$(printf 'before\nafter')" ] || fail "it said $(cat /run/said)"
ok "the first process of a container is upgraded, and keeps its connections"
kill -TERM "$first"
wait $runtime || fail "it ended with $?: $(cat /tmp/log)"
ok "the container stops"
