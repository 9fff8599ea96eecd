//! A client with HTTP/2 of others: the crate `h2`.

use bytes::{Bytes, BytesMut};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use std::sync::Arc;
use tautline::http::request::Builder;
use tautline::http::{HeaderMap, Method, Request, StatusCode, Version};
use tautline::{Certificate, ServerHandle};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// One connection.
pub(crate) struct Client(h2::client::SendRequest<Bytes>);

/// An answer whose body has come as a whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Client {
    /// Connects, with this name in TLS.
    pub(crate) async fn of(proxy: &ServerHandle, root: &str, name: &str) -> Self {
        Self::showing(proxy, root, name, None).await
    }

    /// Connects, with this name in TLS, and with a certificate for servers that ask.
    pub(crate) async fn showing(proxy: &ServerHandle, root: &str, name: &str, own: Option<&Certificate>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match own {
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_slice(&own.chain).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&own.key).unwrap()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TcpStream::connect(proxy.addresses()[0].to_string()).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        // A stream that is not read leaves room for others.
        let mut client = h2::client::Builder::new();
        let (send, connection) = client.initial_connection_window_size(1 << 20).handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(send)
    }

    /// Sends a request, with a body if there is one.
    pub(crate) async fn ask(&self, request: Builder, body: Option<&str>) -> Result<Answer, h2::Error> {
        let request = request.version(Version::HTTP_2).body(()).unwrap();
        let (response, mut stream) = self.0.clone().ready().await?.send_request(request, body.is_none())?;
        if let Some(body) = body {
            send(&mut stream, Bytes::copy_from_slice(body.as_bytes()), true).await?;
        }
        let (head, mut rest) = response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(part) = rest.data().await {
            let part = part?;
            rest.flow_control().release_capacity(part.len())?;
            body.extend_from_slice(&part);
        }
        let (status, body) = (head.status.as_u16(), String::from_utf8(body).unwrap());
        Ok(Answer { status, headers: head.headers, body })
    }

    /// Asks for a path of a host.
    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.ask(Request::get(uri), None).await.unwrap()
    }

    /// Opens a WebSocket, with these fields.
    pub(crate) async fn open(&self, fields: &[(&'static str, &'static str)]) -> WebSocket {
        self.try_open(fields).await.unwrap()
    }

    /// Opens a WebSocket, unless the proxy resets the stream.
    pub(crate) async fn try_open(&self, fields: &[(&'static str, &'static str)]) -> Result<WebSocket, h2::Error> {
        let mut ready = self.0.clone().ready().await.unwrap();
        // The server's settings are the first that it sends.
        while !ready.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request =
            Request::builder().method(Method::CONNECT).uri("https://localhost/ws").version(Version::HTTP_2);
        for (name, value) in [("sec-websocket-version", "13")].iter().chain(fields) {
            request = request.header(*name, *value);
        }
        let request = request.extension(Protocol::from_static("websocket")).body(()).unwrap();
        let (response, sending) = ready.send_request(request, false).unwrap();
        let (head, receiving) = response.await?.into_parts();
        Ok(WebSocket { status: head.status, headers: head.headers, sending, receiving, bytes: BytesMut::new() })
    }
}

async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let room = room.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        stream.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    if end { stream.send_data(Bytes::new(), true) } else { Ok(()) }
}

/// A stream that carries a WebSocket.
pub(crate) struct WebSocket {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    bytes: BytesMut,
}

impl WebSocket {
    pub(crate) async fn send(&mut self, first: u8, payload: &[u8]) {
        let frame = crate::kit::wire::frame(true, first, payload);
        send(&mut self.sending, frame.into(), false).await.unwrap();
    }

    /// The next frame. `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((head, len)) = length(&self.bytes)
                && self.bytes.len() >= head + len
            {
                let frame = self.bytes.split_to(head + len);
                return Some((frame[0], frame[head..].to_vec()));
            }
            let part = self.receiving.data().await?.unwrap();
            self.receiving.flow_control().release_capacity(part.len()).unwrap();
            self.bytes.extend_from_slice(&part);
        }
    }

    /// Resets the stream.
    pub(crate) fn reset(&mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }

    /// The code with which the server has reset the stream.
    pub(crate) async fn was_reset(&mut self) -> Option<Reason> {
        loop {
            match self.receiving.data().await {
                Some(Ok(part)) => self.receiving.flow_control().release_capacity(part.len()).unwrap(),
                Some(Err(error)) => return error.reason(),
                None => return None,
            }
        }
    }
}

/// Bytes of a frame's header and of its payload.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes.get(1)? {
        126 => Some((4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?).into())),
        127 => Some((10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?)),
        len => Some((2, len.into())),
    }
}
