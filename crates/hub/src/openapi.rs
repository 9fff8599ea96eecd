//! The description of the HTTP interface in OpenAPI (`docs/hub-api.json`), made of the routes and compared with the file.

use crate::api::ROUTES;
use crate::rules::Scope;
use serde_json::{Map, Value, json};

/// A text without control characters, of at most this many bytes.
fn name(most: u32, least: u32, pattern: &str) -> Value {
    json!({ "type": "string", "minLength": least, "maxLength": most, "pattern": pattern })
}

const TEXT: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
const TOPIC: &str = "^[^$\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// The body of an operation, and its answer.
fn schemas(operation: &str) -> (Value, Value) {
    let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let answer = |required: &[&str]| json!({ "type": "object", "required": required });
    let (topic, user) = (name(256, 1, TOPIC), name(128, 1, TEXT));
    let to_topic = object(json!({ "topic": topic, "key": name(256, 0, TEXT), "data": {} }), &["topic", "data"]);
    let to_user = object(json!({ "user": user, "data": {} }), &["user", "data"]);
    let message = json!({ "oneOf": [to_topic, to_user] });
    match operation {
        "publish" => (message, answer(&[])),
        "batch" => {
            let messages = json!({ "type": "array", "minItems": 1, "maxItems": 64, "items": message });
            (object(json!({ "messages": messages }), &["messages"]), answer(&["published"]))
        }
        "history" => {
            let after = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
            let body = json!({ "topic": topic, "after": after, "epoch": name(256, 0, TEXT) });
            (object(body, &["topic"]), answer(&["messages", "epoch", "upto"]))
        }
        "presence" => {
            let body = json!({ "topic": topic, "count": { "type": "boolean" } });
            (object(body, &["topic"]), answer(&["topic", "number"]))
        }
        "connections" => (object(json!({ "user": user }), &[]), answer(&[])),
        "disconnect" => {
            let conn = name(64, 1, "^[0-9a-f]{16}/(0|[1-9][0-9]{0,8})(\\.(0|[1-9][0-9]{0,8})){2}$");
            let one = object(json!({ "connection": conn }), &["connection"]);
            (json!({ "oneOf": [object(json!({ "user": user }), &["user"]), one] }), answer(&[]))
        }
        "revoke" => {
            let seconds = json!({ "type": "integer", "minimum": 0, "maximum": 2_592_000 });
            let of_user = object(json!({ "user": user, "seconds": seconds }), &["user", "seconds"]);
            let of_token = object(json!({ "token": user, "seconds": seconds }), &["token", "seconds"]);
            (json!({ "oneOf": [of_user, of_token] }), answer(&[]))
        }
        _ => (object(json!({}), &[]), answer(&["users", "log_bytes", "feeds_bytes"])),
    }
}

/// One operation.
fn operation(path: &str, scope: Scope) -> Value {
    let (body, answer) = schemas(path);
    let json = |schema: Value| json!({ "application/json": { "schema": schema } });
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "done", "content": json(answer) }));
    let errors = [
        ("400", "the body or a name in it is wrong"),
        ("401", "no key"),
        ("403", "a scope or topic that the key has not"),
        ("404", "the topic has no history"),
        ("405", "the method is not POST"),
        ("409", "a request with this Idempotency-Key is being done, or it was another one"),
        ("410", "the history after that offset is not kept"),
        ("413", "the body is too long"),
        ("429", "too many requests of the key, or too many of this address without one"),
        ("503", "the log is away"),
    ];
    for (status, description) in errors {
        let content = json(json!({ "$ref": "#/components/schemas/Error" }));
        let plain = status == "413";
        let response = if plain {
            json!({ "description": description })
        } else {
            json!({ "description": description, "content": content })
        };
        responses.insert(status.to_owned(), response);
    }
    let repeat = json!({ "name": "Idempotency-Key", "in": "header", "required": false,
        "schema": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$" } });
    json!({
        "operationId": path,
        "description": format!("Needs the scope `{}`.", scope.name()),
        "parameters": [repeat],
        "requestBody": { "required": true, "content": json(body) },
        "responses": responses,
    })
}

fn document() -> Value {
    let paths = ROUTES.map(|(path, scope)| (format!("/api/{path}"), json!({ "post": operation(path, scope) })));
    let text = json!({ "type": "string" });
    let error = json!({ "type": "object", "required": ["code", "reason", "remedy"],
        "properties": { "code": text, "reason": text, "remedy": text } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "HTTP interface of a Tautline hub", "version": "1", "license": { "name": "MIT OR Apache-2.0" } },
        "paths": paths.into_iter().collect::<Map<_, _>>(),
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Error": { "type": "object", "required": ["error"], "properties": { "error": error } } },
        },
        "security": [{ "key": [] }],
    })
}

#[test]
fn the_file_describes_the_operations() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hub-api.json");
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("TAUTLINE_WRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text, "write it anew by TAUTLINE_WRITE=1");
}
