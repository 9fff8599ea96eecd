"""An application's server with the package `pusher`: authorizes channels and users, and does what a test asks for.

    server.py HUB_PORT ID KEY SECRET

It prints its own port. The hub is the library's only configuration: `host`, `port` and `ssl`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pusher
from pusher.errors import PusherBadAuth, PusherBadRequest
from pusher.http import POST, Request

port, app_id, key, secret = sys.argv[1:]
client = pusher.Pusher(app_id=app_id, key=key, secret=secret, host="127.0.0.1", port=int(port), ssl=False)
encrypted = pusher.Pusher(
    app_id=app_id, key=key, secret=secret, host="127.0.0.1", port=int(port), ssl=False,
    encryption_master_key_base64="QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
)


def bad_auth():
    stranger = pusher.Pusher(app_id=app_id, key=key, secret="x" * 20, host="127.0.0.1", port=int(port), ssl=False)
    try:
        stranger.trigger("news", "greet", {})
    except PusherBadAuth:
        return "refused"


def bad_request():
    try:
        client.channels_info(attributes=["user_count"])
    except PusherBadRequest:
        return "refused"


def terminate(user_id):
    # Version 3.3.4 of the library leaves the app out of the path.
    path = "/apps/%s/users/%s/terminate_connections" % (app_id, user_id)
    return client._pusher_client.http.send_request(Request(client._pusher_client, POST, path, {}))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path.startswith("/call/"):
            arguments = json.loads(body)
            own = {"bad_auth": bad_auth, "bad_request": bad_request, "terminate_user_connections": terminate, "trigger_encrypted": encrypted.trigger}
            call = own.get(self.path[6:]) or getattr(client, self.path[6:])
            answer = call(**arguments)
        else:
            form = {name: values[0] for name, values in parse_qs(body).items()}
            answer = self.authorize(form)
        if answer is None:
            return self.send_error(403)
        # The shared secret of an encrypted channel is bytes.
        text = json.dumps(answer, default=bytes.decode).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def authorize(self, form):
        socket, user = form["socket_id"], form.get("user", "ann")
        if self.path == "/pusher/user-auth":
            return client.authenticate_user(socket, {"id": user, "name": user.title()})
        channel = form["channel_name"]
        if channel == "private-forbidden":
            return None
        if channel.startswith("presence-"):
            return client.authenticate(channel, socket, {"user_id": user, "user_info": {"name": user.title()}})
        return encrypted.authenticate(channel, socket)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
