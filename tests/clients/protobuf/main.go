// Reads messages with the Go runtime. Arguments and output: tests/clients/protobuf.py.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	bytes, err := os.ReadFile(os.Args[1] + "/descriptors.binpb")
	check(err)
	var set descriptorpb.FileDescriptorSet
	check(proto.Unmarshal(bytes, &set))
	files, err := protodesc.NewFiles(&set)
	check(err)
	types := dynamicpb.NewTypes(files)

	bytes, err = os.ReadFile(os.Args[1] + "/cases.json")
	check(err)
	var cases []struct {
		Name, Message, JSON string
		Binary              []byte
	}
	check(json.Unmarshal(bytes, &cases))
	for _, one := range cases {
		message, err := types.FindMessageByName(protoreflect.FullName(one.Message))
		check(err)
		binary, read := message.New().Interface(), message.New().Interface()
		check(proto.UnmarshalOptions{Resolver: types}.Unmarshal(one.Binary, binary))
		if err := (protojson.UnmarshalOptions{Resolver: types}).Unmarshal([]byte(one.JSON), read); err != nil {
			log.Fatalf("%s: %v", one.Name, err)
		}
		printed, err := protojson.MarshalOptions{Resolver: types}.Marshal(binary)
		check(err)
		line, err := json.Marshal(map[string]any{
			"name": one.Name, "equal": proto.Equal(binary, read), "message": json.RawMessage(printed),
		})
		check(err)
		fmt.Println(string(line))
	}
}
