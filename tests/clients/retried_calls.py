"""The rule of retries.py for grpcio."""

import grpc
import retries
from google.protobuf import empty_pb2, message_factory
from google.rpc import error_details_pb2
from grpc_status import rpc_status


class Outcome:
    """The outcome of a call, with the reply of another."""

    def __init__(self, reply):
        self.reply = reply

    def result(self):
        return self.reply

    def code(self):
        return grpc.StatusCode.OK


class RepeatingCalls(grpc.UnaryUnaryClientInterceptor):
    """Makes grpcio repeat calls."""

    def __init__(self, channel):
        self.channel = channel

    def intercept_unary_unary(self, continuation, details, request):
        verb = details.method.rsplit("/", 1)[1]
        for attempt, _ in enumerate(retries.pauses()):
            call = continuation(details, request)
            if call.code() != grpc.StatusCode.UNAVAILABLE:
                break
            retries.note(details.method, call.details())
        if attempt and verb.startswith("Create") and call.code() == grpc.StatusCode.ALREADY_EXISTS:
            return Outcome(self.created(call, details, request))
        if attempt and verb.startswith("Delete") and call.code() == grpc.StatusCode.NOT_FOUND:
            return Outcome(empty_pb2.Empty())
        return call

    def created(self, error, details, request):
        """Gets the resource that the first of several equal calls has created."""
        named = error_details_pb2.ResourceInfo()
        uid = next(named.resource_name for one in rpc_status.from_call(error).details if one.Unpack(named))
        service, verb = details.method[1:].split("/")
        method = request.DESCRIPTOR.file.pool.FindServiceByName(service).FindMethodByName(verb.replace("Create", "Get"))
        types = [message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type)]
        get = self.channel.unary_unary(
            f"/{service}/{method.name}", types[0].SerializeToString, types[1].FromString
        )
        return get(types[0](uid=uid), metadata=details.metadata)


def channel(address: str, credentials=None):
    """Opens a channel whose calls are repeated in a fleet, in cleartext unless there are credentials."""
    plain = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    return grpc.intercept_channel(plain, RepeatingCalls(plain)) if retries.REPEATED else plain


def repeated(read):
    """Calls a function that only reads, over streams, again where a fleet has cut it off."""
    for _ in retries.pauses() if retries.REPEATED else ():
        try:
            return read()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            retries.note("gRPC stream", error.details())
    return read()
