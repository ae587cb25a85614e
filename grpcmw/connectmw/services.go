package connectmw

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lockkit/lockkit/grpcmw"
)

// Services returns the named services, for grpcmw.Check and grpcmw.Audit:
//
//	err := grpcmw.Audit(connectmw.Services(ordersconnect.OrdersName), rules)
//
// Services panics if a service is not linked into the program.
func Services(names ...string) grpcmw.Services {
	s := make(services, len(names))
	for _, name := range names {
		d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		service, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			panic(fmt.Sprintf("connectmw: Services: %q is no service that the program has", name))
		}
		var info grpc.ServiceInfo
		for i, all := 0, service.Methods(); i < all.Len(); i++ {
			m := all.Get(i)
			info.Methods = append(info.Methods, grpc.MethodInfo{
				Name: string(m.Name()), IsClientStream: m.IsStreamingClient(), IsServerStream: m.IsStreamingServer(),
			})
		}
		s[name] = info
	}
	return s
}

type services map[string]grpc.ServiceInfo

func (s services) GetServiceInfo() map[string]grpc.ServiceInfo { return s }
