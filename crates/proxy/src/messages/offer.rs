use super::Messages;
use crate::forward::check_switching;
use std::sync::Arc;
use tautline::http::header::{
    HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL,
};
use tautline::http::{Request, Response};
use tautline::layers::engine::Terms;
use tautline::layers::ws::deflate::{DeflateConfig, DeflateParams};
use tautline::layers::ws::handshake::{Refused, accept};
use tautline::{Origins, Policy};

/// The opening handshake of a client, of which its server has not decided yet.
///
/// Both sides have the client's key. Extensions are for one side alone: the proxy answers those of the client, and asks its server
/// for none. The subprotocol is the server's choice among those of the client.
#[derive(Debug)]
pub struct Offer {
    accept: HeaderValue,
    extensions: Option<HeaderValue>,
    deflate: Option<(DeflateParams, DeflateConfig)>,
    subprotocols: Vec<HeaderValue>,
    /// The route's rules.
    pub(crate) messages: Arc<Messages>,
}

impl Offer {
    /// Takes the offer of a client, and removes from its fields what is not for the server.
    ///
    /// # Errors
    /// The request is no opening handshake. The error has the response.
    pub fn take(request: &Request<()>, fields: &mut HeaderMap, messages: &Arc<Messages>) -> Result<Self, Refused> {
        let mut policy = Policy::default();
        // The route has its own rule.
        policy.origins = Origins::Any;
        policy.deflate = messages.settings.deflate.then(DeflateConfig::default);
        let accepted = accept(request, &policy)?;
        fields.remove(SEC_WEBSOCKET_EXTENSIONS);
        let headers = accepted.response.headers();
        Ok(Self {
            accept: headers.get(SEC_WEBSOCKET_ACCEPT).cloned().unwrap_or(HeaderValue::from_static("")),
            extensions: headers.get(SEC_WEBSOCKET_EXTENSIONS).cloned(),
            deflate: accepted.negotiated.deflate.zip(policy.deflate),
            subprotocols: request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect(),
            messages: messages.clone(),
        })
    }

    /// Makes the server's response that of the proxy to the client. Returns the terms of both ends: the client's first.
    ///
    /// # Errors
    /// The server broke a rule, in words.
    pub fn answer(&self, response: &mut Response<()>) -> Result<(Terms, Terms), &'static str> {
        let headers = response.headers_mut();
        check_switching(headers, Some(&self.accept))?;
        if headers.get_all(SEC_WEBSOCKET_EXTENSIONS).iter().any(|value| !value.is_empty()) {
            return Err("it has an extension that was not offered");
        }
        let mut chosen = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        match (chosen.next(), chosen.next()) {
            (None, _) => {}
            (Some(name), None) if !name.is_empty() && self.offers(name) => {}
            _ => return Err("it names a subprotocol that was not offered"),
        }
        headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        if let Some(extensions) = &self.extensions {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, extensions.clone());
        }
        let terms = Terms::new(self.messages.settings.max_size);
        Ok((terms.clone().with_deflate(self.deflate), terms))
    }

    fn offers(&self, name: &HeaderValue) -> bool {
        let lists = self.subprotocols.iter().filter_map(|list| list.to_str().ok());
        lists.flat_map(|list| list.split(',')).any(|one| one.trim().as_bytes() == name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Settings;

    fn request(fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::get("/").header("host", "a").header("upgrade", "websocket");
        for (name, value) in [
            ("connection", "Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]
        .iter()
        .chain(fields)
        {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn response(fields: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(101).header("upgrade", "WebSocket");
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    const ACCEPT: (&str, &str) = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    const UPGRADES: (&str, &str) = ("connection", "Upgrade");

    fn offer(fields: &[(&str, &str)], deflate: bool) -> (Offer, HeaderMap) {
        let request = request(fields);
        let mut passed = request.headers().clone();
        let messages = Messages::new(Settings { deflate, ..Settings::default() });
        let offer = Offer::take(&request, &mut passed, &Arc::new(messages)).unwrap();
        (offer, passed)
    }

    #[test]
    fn extensions_are_for_one_side_alone() {
        let asked = ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits");
        for deflate in [false, true] {
            let (offer, passed) = offer(&[asked], deflate);
            assert!(!passed.contains_key("sec-websocket-extensions"));
            let mut response = response(&[ACCEPT, UPGRADES]);
            let (client, server) = offer.answer(&mut response).unwrap();
            assert_eq!((client.deflate.is_some(), server.deflate.is_some()), (deflate, false));
            assert_eq!(response.headers().contains_key("sec-websocket-extensions"), deflate);
        }
    }

    #[test]
    fn a_server_chooses_among_the_subprotocols_of_its_client() {
        let (offer, passed) = offer(&[("sec-websocket-protocol", "v1.chat, v2.chat")], false);
        assert_eq!(passed["sec-websocket-protocol"], "v1.chat, v2.chat");
        let chosen =
            |name: &str| offer.answer(&mut response(&[ACCEPT, UPGRADES, ("sec-websocket-protocol", name)])).map(drop);
        assert_eq!(chosen("v2.chat"), Ok(()));
        for bad in ["v3.chat", "", "V1.CHAT", "v1.chat, v2.chat"] {
            assert!(chosen(bad).unwrap_err().contains("subprotocol"), "{bad}");
        }
    }

    #[test]
    fn an_answer_that_breaks_a_rule_is_refused() {
        let (offer, _) = offer(&[], true);
        for bad in [
            &[UPGRADES][..],
            &[ACCEPT],
            &[ACCEPT, ACCEPT, UPGRADES],
            &[("sec-websocket-accept", "AAAALMBiTxaQ9kYGzzhZRbK+xOo="), UPGRADES],
            &[ACCEPT, UPGRADES, ("sec-websocket-extensions", "permessage-deflate")],
            &[ACCEPT, UPGRADES, ("sec-websocket-protocol", "x")],
        ] {
            assert!(offer.answer(&mut response(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_that_is_no_handshake_is_refused() {
        for (fields, status) in
            [(&[("sec-websocket-version", "8")][..], 426), (&[("sec-websocket-extensions", ";")], 400)]
        {
            let request = request(fields);
            let messages = Arc::new(Messages::new(Settings::default()));
            let refused = Offer::take(&request, &mut HeaderMap::new(), &messages).unwrap_err();
            assert_eq!(refused.response.status().as_u16(), status);
        }
    }
}
