//! Shared test support: a server of both transports on one port over the memory store, whose tokens are uids, and
//! minimal clients that write and read JSON.

#[path = "../../../platform-http/tests/support/setting.rs"]
mod setting;

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use platform_grpc::{AsBytes, Grpc};
use platform_http::{Layers, Limits, Rest, serve};
use platform_services::Tokens;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, SerializeOptions};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tonic::{Status, metadata::MetadataMap, transport::Channel};
use tonic_types::pb;

use platform_core::proto::FILE_DESCRIPTOR_SET;
use platform_engine::{
    platform::Platform,
    store::{Store, memory::MemoryStore},
};
pub(crate) use setting::{NoTokens, OPERATOR, ORG, UidIsToken, platform_of};

/// A server of both transports on a free loopback port, with a gRPC client.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) grpc: Grpc,
    stop: oneshot::Sender<()>,
    done: JoinHandle<std::io::Result<()>>,
}

impl TestServer {
    pub(crate) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        Self::of(platform_of(Arc::new(MemoryStore::new()), &[]).await, limits).await
    }

    /// Starts a server over an empty store.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::of(platform_of(store, &[]).await, Limits::default()).await
    }

    /// Starts a server of a platform.
    pub(crate) async fn of(platform: Platform, limits: Limits) -> Self {
        let platform = Arc::new(platform);
        let rest = Rest::new(Arc::clone(&platform), Arc::new(UidIsToken), limits.clone()).unwrap();
        let grpc = Grpc::new(platform, Arc::new(UidIsToken), limits.clone()).unwrap();
        let grpc = grpc.mount(Tokens::new(Arc::new(NoTokens))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let service = Layers::default().around(grpc.clone().or_else_http(rest));
        let draining = grpc.clone();
        let stopped = async move {
            drop(stopped.await);
            draining.drain().await;
        };
        let done = tokio::spawn(async move { serve(listener, service, &limits, stopped).await });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { address, channel, grpc, stop, done }
    }

    /// Starts a shutdown; returns the task of the server.
    pub(crate) fn stop(self) -> JoinHandle<std::io::Result<()>> {
        let _ = self.stop.send(());
        self.done
    }

    /// Calls a method as the operator.
    pub(crate) async fn call(&self, method: &str, request: Value) -> Result<Value, Status> {
        self.call_as(&[("authorization", &format!("Bearer {OPERATOR}"))], method, request).await
    }

    /// Calls a method, such as `iam.v2.GroupsService/GetGroup`, with this metadata. The reply has names and times as
    /// REST writes them, without default values.
    pub(crate) async fn call_as(
        &self,
        metadata: &[(&str, &str)],
        method: &str,
        request: Value,
    ) -> Result<Value, Status> {
        let described = described(method);
        let text = request.to_string().replace("\"syncConfig\":", "\"sync_config\":");
        let mut json = serde_json::Deserializer::from_str(&text);
        let request = DynamicMessage::deserialize(described.input(), &mut json).unwrap();
        let reply = self.send(metadata, method, request.encode_to_vec().into()).await?;
        let reply = DynamicMessage::decode(described.output(), reply).unwrap();
        let options = SerializeOptions::new().skip_default_fields(true);
        Ok(reply.serialize_with_options(serde_json::value::Serializer, &options).unwrap())
    }

    /// Calls a method with these bytes as its message.
    pub(crate) async fn send(&self, metadata: &[(&str, &str)], method: &str, message: Bytes) -> Result<Bytes, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = metadata_of(metadata);
        let path = path(method).parse().unwrap();
        client.unary(request, path, AsBytes).await.map(tonic::Response::into_inner)
    }

    /// Sends a REST request as the operator; returns the status and the body.
    pub(crate) async fn rest(&self, verb: &str, path: &str, body: Value) -> (u16, Value) {
        self.rest_as(OPERATOR, verb, path, body).await
    }

    pub(crate) async fn rest_as(&self, token: &str, verb: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = http::Request::builder()
            .method(verb)
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Creates a repo; returns its uid.
    pub(crate) async fn repo(&self, name: &str) -> String {
        let request = json!({ "parent": ORG, "repo": { "name": name } });
        let repo = self.call("registry.v2.ReposService/CreateRepo", request).await.unwrap();
        repo["uid"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn metadata_of(pairs: &[(&str, &str)]) -> MetadataMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in pairs {
        headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    MetadataMap::from_headers(headers)
}

pub(crate) fn path(method: &str) -> String {
    if method.starts_with('/') { method.to_owned() } else { format!("/chainguard.platform.{method}") }
}

/// Returns the descriptors of the contract and of our own services, as clients compile them.
pub(crate) fn pool() -> DescriptorPool {
    let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    pool.decode_file_descriptor_set(&include_bytes!("../../proto/own.binpb")[..]).unwrap();
    pool
}

pub(crate) fn described(method: &str) -> MethodDescriptor {
    let path = path(method);
    let (service, method) = path.strip_prefix('/').unwrap().split_once('/').unwrap();
    let service = pool().get_service_by_name(service).unwrap();
    service.methods().find(|one| one.name() == method).unwrap()
}

/// Returns an error in the form that REST shows.
pub(crate) fn as_rest(status: &Status) -> Value {
    let message = pb::Status::decode(status.details()).unwrap();
    assert_eq!((message.code, &*message.message), (status.code() as i32, status.message()));
    let pool = prost_reflect::DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
    let detail = |any: &prost_types::Any| {
        let name = any.type_url.strip_prefix("type.googleapis.com/").unwrap();
        let message = DynamicMessage::decode(pool.get_message_by_name(name).unwrap(), &*any.value).unwrap();
        let mut object = serde_json::Map::from_iter([("@type".to_owned(), any.type_url.clone().into())]);
        let options = SerializeOptions::new().skip_default_fields(true);
        let fields = message.serialize_with_options(serde_json::value::Serializer, &options).unwrap();
        object.extend(fields.as_object().unwrap().clone());
        Value::Object(object)
    };
    let details: Vec<_> = message.details.iter().map(detail).collect();
    json!({ "code": message.code, "message": message.message, "details": details })
}
