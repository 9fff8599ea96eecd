#!/bin/sh
# Installs the package that the argument names, starts the server as the unit does, talks to it, and removes the package.
# Run by `cargo xtask test --only package`, as root in a root folder of its own, with a network of its own.
set -eu
package=$1
fail() { echo "FAILED: $*"; exit 1; }
ok() { echo "ok $*"; }

# Another installed version is none of the test's business.
dpkg --install "$package"
getent passwd taut > /dev/null || fail "there is no user taut"
[ "$(stat -c '%U:%G %a' /etc/taut)" = "root:taut 750" ] || fail "/etc/taut: $(stat -c '%U:%G %a' /etc/taut)"
for file in taut taut-proxy; do
    dpkg-query --showformat='${Conffiles}\n' --show taut | grep -q "/etc/default/$file " || fail "no conffile $file"
done
[ -s /usr/share/man/man1/taut-serve.1.gz ] || fail "no manual page"
ok "installed"

unit=/usr/lib/systemd/system/taut.service
if command -v systemd-analyze > /dev/null; then
    systemd-analyze verify --man=no "$unit" /usr/lib/systemd/system/taut-proxy.service /usr/lib/systemd/system/taut.socket 2> /tmp/verify || fail "$(cat /tmp/verify)"
    # Other units of the machine may have warnings of their own.
    if grep -q 'taut[.-]' /tmp/verify; then fail "$(grep 'taut[.-]' /tmp/verify)"; fi
    ok "systemd understands the units"
fi

ip link set lo up
taut cert --dir /tmp/made localhost 127.0.0.1 > /dev/null
install -o root -g taut -m 0640 /tmp/made/cert.pem /tmp/made/key.pem /etc/taut
install -d -o taut -g taut -m 0750 /run/taut
command=$(sed -n 's/^ExecStart=//p' "$unit")
. /etc/default/taut
# As the unit: the user taut, one capability, no new privileges.
# shellcheck disable=SC2086
setpriv --reuid taut --regid taut --init-groups --no-new-privs --bounding-set -all,+net_bind_service \
    --inh-caps +net_bind_service --ambient-caps +net_bind_service \
    $(echo "$command" | sed "s|\$TAUT_OPTIONS|$TAUT_OPTIONS|") > /tmp/served 2> /tmp/log &
server=$!
tries=0
until grep -q '^listening on wss://0.0.0.0:443' /tmp/served; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "it does not listen: $(cat /tmp/served /tmp/log)"
    kill -0 $server 2> /dev/null || fail "it has ended: $(cat /tmp/served /tmp/log)"
    sleep 0.1
done
ok "started at port 443 without root"
grep -q "^Uid:.*\b$(id -u taut)\b" "/proc/$server/status" || fail "it does not run as taut"
said=$(echo hello | taut connect --ca /tmp/made/ca.pem --wait 10 wss://localhost/)
[ "$said" = hello ] || fail "it said $said"
ok "it echoes"
[ "$(stat -c %a /run/taut/admin.sock)" = 660 ] || fail "mode of the admin socket: $(stat -c %a /run/taut/admin.sock)"
ready=$(python3 - <<'PYTHON'
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/taut/admin.sock")
s.sendall(b"GET /readyz HTTP/1.1\r\nHost: taut\r\nConnection: close\r\n\r\n")
print(s.makefile().readline().split()[1])
PYTHON
)
[ "$ready" = 200 ] || fail "/readyz: $ready"
ok "it is ready"
# A connection that says a line before the program is replaced, and one after.
{ echo before; until [ -e /tmp/upgraded ]; do sleep 0.1; done; echo after; } \
    | taut connect --ca /tmp/made/ca.pem --wait 60 wss://localhost/ > /tmp/said &
client=$!
tries=0
until grep -q before /tmp/said; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "it does not echo"
    sleep 0.1
done
cp /usr/bin/taut /usr/bin/taut.new
mv /usr/bin/taut.new /usr/bin/taut
worker=$(cat "/proc/$server/task/$server/children")
# Any process of the server names it. The shell parts them.
# shellcheck disable=SC2086
taut upgrade $worker $server 2> /tmp/refused || fail "no upgrade: $(cat /tmp/refused /tmp/log)"
[ "$(cat "/proc/$server/task/$server/children")" != "$worker" ] || fail "the old process serves"
grep -q '^NoNewPrivs:.*1' "/proc/$(tr -d ' ' < "/proc/$server/task/$server/children")/status" || fail "new privileges"
touch /tmp/upgraded
wait $client || fail "the connection has ended"
[ "$(cat /tmp/said)" = "$(printf 'before\nafter')" ] || fail "it said $(cat /tmp/said)"
ok "it is upgraded as it is started, and keeps its connections"

# The proxy, as its unit starts it, in front of a server without TLS. A reload gives it another server.
taut serve --plain --listen 127.0.0.1:3000 > /tmp/first 2>&1 &
first=$!
taut serve --plain --listen 127.0.0.1:3001 > /tmp/second 2>&1 &
second=$!
configure() {
    cat > /etc/taut/proxy.toml.new <<TOML
listen = ["127.0.0.1:8443"]
certificates = [{ cert = "cert.pem", key = "key.pem" }]
[[route]]
to = "app"
[backend.app]
servers = ["http://127.0.0.1:$1"]
TOML
    install -o root -g taut -m 0640 /etc/taut/proxy.toml.new /etc/taut/proxy.toml
}
configure 3000
install -d -o taut -g taut -m 0750 /run/taut-proxy
command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/taut-proxy.service)
. /etc/default/taut-proxy
# shellcheck disable=SC2086
setpriv --reuid taut --regid taut --init-groups --no-new-privs --bounding-set -all,+net_bind_service \
    --inh-caps +net_bind_service --ambient-caps +net_bind_service \
    $(echo "$command" | sed "s|\$TAUT_PROXY_OPTIONS|$TAUT_PROXY_OPTIONS|") > /tmp/proxied 2> /tmp/proxy-log &
proxy=$!
metrics() {
    python3 - <<'PYTHON'
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/taut-proxy/admin.sock")
s.sendall(b"GET /metrics HTTP/1.1\r\nHost: taut\r\nConnection: close\r\n\r\n")
print(s.makefile().read())
PYTHON
}
# Waits until a command succeeds.
until_true() {
    tries=0
    until sh -c "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "$2: $(cat /tmp/proxied /tmp/proxy-log)"
        kill -0 $proxy 2> /dev/null || fail "the proxy has ended: $(cat /tmp/proxied /tmp/proxy-log)"
        sleep 0.1
    done
}
until_true "grep -q '^listening on wss://127.0.0.1:8443' /tmp/proxied" "the proxy does not listen"
said=$(echo hello | taut connect --ca /tmp/made/ca.pem --wait 10 wss://localhost:8443/)
[ "$said" = hello ] || fail "through the proxy it said $said"
metrics | grep -q '^taut_proxy_server_up{backend="app",server="http://127.0.0.1:3000"} 1' || fail "metrics: $(metrics)"
ok "the proxy passes a WebSocket on, and shows its server"
configure 3001
kill $first
wait $first || fail "the first server ended with $?"
kill -HUP $proxy
tries=0
until metrics | grep -q 'server="http://127.0.0.1:3001"'; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "no reload: $(cat /tmp/proxy-log)"
    sleep 0.1
done
said=$(echo again | taut connect --ca /tmp/made/ca.pem --wait 10 wss://localhost:8443/)
[ "$said" = again ] || fail "after the reload it said $said"
ok "the proxy is reloaded"
before=$(cat "/proc/$proxy/task/$proxy/children")
# shellcheck disable=SC2086
taut upgrade $before $proxy 2> /tmp/refused || fail "no upgrade of the proxy: $(cat /tmp/refused /tmp/proxy-log)"
[ "$(cat "/proc/$proxy/task/$proxy/children")" != "$before" ] || fail "the old proxy serves"
said=$(echo more | taut connect --ca /tmp/made/ca.pem --wait 10 wss://localhost:8443/)
[ "$said" = more ] || fail "after the upgrade it said $said"
ok "the proxy is upgraded"
kill -TERM $proxy
wait $proxy || fail "the proxy ended with $?: $(cat /tmp/proxy-log)"
kill $second
wait $second || fail "the second server ended with $?"
kill -TERM $server
wait $server || fail "it ended with $?: $(cat /tmp/log)"
ok "it stops"

dpkg --purge taut
[ ! -e /usr/bin/taut ] && [ ! -e /etc/default/taut ] || fail "files are left"
[ -e /etc/taut/key.pem ] || fail "the key is gone"
ok "removed"
