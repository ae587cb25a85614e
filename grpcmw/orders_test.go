package grpcmw_test

import "github.com/lockkit/lockkit/grpcmw/internal/orders"

// The services that the tests call, under the names that generated code usually has in
// a separate package.
type (
	Item    = orders.Item
	Kind    = orders.Kind
	Order   = orders.Order
	OrderV2 = orders.OrderV2
	Receipt = orders.Receipt

	Order_Account = orders.Order_Account
	Order_Card    = orders.Order_Card

	OrdersClient              = orders.OrdersClient
	TillsClient               = orders.TillsClient
	UnimplementedOrdersServer = orders.UnimplementedOrdersServer
	UnimplementedTillsServer  = orders.UnimplementedTillsServer
)

var (
	File_orders_proto = orders.File_orders_proto

	NewOrdersClient      = orders.NewOrdersClient
	NewTillsClient       = orders.NewTillsClient
	RegisterOrdersServer = orders.RegisterOrdersServer
	RegisterTillsServer  = orders.RegisterTillsServer
)

const (
	Kind_KIND_CARD = orders.Kind_KIND_CARD

	Orders_Chat_FullMethodName   = orders.Orders_Chat_FullMethodName
	Orders_Pay_FullMethodName    = orders.Orders_Pay_FullMethodName
	Orders_Refund_FullMethodName = orders.Orders_Refund_FullMethodName
	Orders_Show_FullMethodName   = orders.Orders_Show_FullMethodName
	Orders_Upload_FullMethodName = orders.Orders_Upload_FullMethodName
	Orders_Watch_FullMethodName  = orders.Orders_Watch_FullMethodName

	Tills_Pay_FullMethodName      = orders.Tills_Pay_FullMethodName
	Tills_Peek_FullMethodName     = orders.Tills_Peek_FullMethodName
	Tills_Scan_FullMethodName     = orders.Tills_Scan_FullMethodName
	Tills_Settle_FullMethodName   = orders.Tills_Settle_FullMethodName
	Tills_Transfer_FullMethodName = orders.Tills_Transfer_FullMethodName
	Tills_Void_FullMethodName     = orders.Tills_Void_FullMethodName
	Tills_Watch_FullMethodName    = orders.Tills_Watch_FullMethodName
)
