//! A gRPC service of your own, next to those of the platform. Usually its code is generated from a `.proto` file.

use axum::{Router, body::Body, extract::Request, response::Response, routing::any};
use tonic::{
    Status,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

/// The full name of the service.
pub const NAME: &str = "acme.billing.v1.Billing";

/// Returns the routes of the service, as `tonic::service::Routes` does for generated code.
pub fn routes() -> Router {
    Router::new().route("/acme.billing.v1.Billing/GetPlan", any(get_plan))
}

async fn get_plan(request: Request<Body>) -> Response {
    Grpc::new(ProstCodec::<String, String>::default()).unary(GetPlan, request).await.map(Body::new)
}

/// Returns the plan of a customer. `String` is encoded as the message `google.protobuf.StringValue`.
struct GetPlan;

impl UnaryService<String> for GetPlan {
    type Response = String;
    type Future = std::future::Ready<Result<tonic::Response<String>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new(format!("the plan of {}", request.into_inner()))))
    }
}
