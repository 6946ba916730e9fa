package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// repeated sends a call, and in a fleet (fleet.py) again while its outcome is unknown, by the rule of docs/api.md,
// "Retries".
func repeated(method string, reply any, send func(string, any, any) error, request any) error {
	err := send(method, request, reply)
	file := os.Getenv("PLATFORM_REPEATED")
	if file == "" || status.Code(err) != codes.Unavailable {
		return err
	}
	pause := 100 * time.Millisecond
	for until := time.Now().Add(30 * time.Second); status.Code(err) == codes.Unavailable && time.Now().Before(until); {
		note(file, fmt.Sprintf("%s: %v", method, err))
		time.Sleep(pause)
		pause = min(2*pause, 1500*time.Millisecond)
		if strings.Contains(method, "/Create") && exists(method, request.(proto.Message), reply, send) {
			return nil
		}
		err = send(method, request, reply)
	}
	service, verb, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	gone := status.Code(err) == codes.NotFound
	// The caller's binding is deleted with an organization.
	gone = gone || verb == "DeleteGroup" && status.Code(err) == codes.PermissionDenied
	if strings.HasPrefix(verb, "Delete") && gone {
		return nil
	}
	if kind, creates := strings.CutPrefix(verb, "Create"); creates && status.Code(err) == codes.AlreadyExists {
		return created(service, kind, err, reply, send)
	}
	return err
}

// exists looks for a resource of version 2 by its parent and name, which need not be unique.
func exists(method string, request proto.Message, reply any, send func(string, any, any) error) bool {
	service, verb, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return false
	}
	kind, _ := strings.CutPrefix(verb, "Create")
	plural := kind + "s"
	if short, ends := strings.CutSuffix(kind, "y"); ends {
		plural = short + "ies"
	}
	list := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name("List" + plural))
	parent := request.ProtoReflect().Descriptor().Fields().ByName("parent")
	if list == nil || parent == nil {
		return false
	}
	form := request.ProtoReflect().Get(request.ProtoReflect().Descriptor().Fields().Get(1)).Message()
	name, uidp, by := form.Descriptor().Fields().ByName("name"), list.Input().Fields().ByName("uidp"), list.Input().Fields().ByName("name")
	if name == nil || uidp == nil || by == nil {
		return false
	}
	filter, listed := dynamicpb.NewMessage(list.Input()), dynamicpb.NewMessage(list.Output())
	filter.Set(by, form.Get(name))
	children := filter.Mutable(uidp).Message()
	children.Set(children.Descriptor().Fields().ByName("children_of"), request.ProtoReflect().Get(parent))
	if send("/"+service+"/"+string(list.Name()), filter, listed) != nil {
		return false
	}
	items := listed.Get(list.Output().Fields().Get(0)).List()
	return items.Len() == 1 && copied(items.Get(0).Message(), reply) == nil
}

// copied sets a reply to a message of the same type.
func copied(one protoreflect.Message, reply any) error {
	bytes, err := proto.Marshal(one.Interface())
	if err != nil {
		return err
	}
	return proto.Unmarshal(bytes, reply.(proto.Message))
}

// created gets the resource that the first of several equal calls has created.
func created(service, kind string, failed error, reply any, send func(string, any, any) error) error {
	uid := ""
	for _, detail := range status.Convert(failed).Details() {
		if named, is := detail.(*errdetails.ResourceInfo); is {
			uid = named.GetResourceName()
		}
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return err
	}
	methods := found.(protoreflect.ServiceDescriptor).Methods()
	for _, name := range []string{"Get" + kind, "List" + kind + "s", "List"} {
		method := methods.ByName(protoreflect.Name(name))
		if method == nil {
			continue
		}
		request, answer := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		for _, field := range []protoreflect.Name{"uid", "id", "repo_id"} {
			if by := method.Input().Fields().ByName(field); by != nil {
				request.Set(by, protoreflect.ValueOfString(uid))
			}
		}
		if err := send("/"+service+"/"+name, request, answer); err != nil {
			return err
		}
		one := answer.ProtoReflect()
		// Lists of version 1 have `items`.
		if items := method.Output().Fields().ByName("items"); items != nil {
			if one.Get(items).List().Len() != 1 {
				return failed
			}
			one = one.Get(items).List().Get(0).Message()
		}
		return copied(one, reply)
	}
	return failed
}

func note(file, line string) {
	if open, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
		defer open.Close()
		fmt.Fprintln(open, line)
	}
}
