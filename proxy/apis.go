package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

// routing says which broker gets a call.
type routing uint8

const (
	toNode        routing = iota // the broker behind the virtual node that was asked
	toController                 // the same: Metadata shows the controller as the virtual node of the real one
	toCoordinator                // the coordinator of call.group, whatever node was asked
	toAny                        // any broker will do; may be answered here
)

// row says all about one API key. Rows without functions are forwarded unread by decision.
type row struct {
	key, min, max int16 // the versions that the proxy can handle, both inclusive
	name          string
	gate          gateClass
	to            routing
	// request rewrites req to physical in place. It may set call.group, keep what the answer needs in call.state, and
	// answer here with call.answer or call.answerLater. An error ends the session; its reason is in a closeError.
	request func(c *call, req kmsg.Request) error
	// response rewrites resp to virtual in place. errReissue sends the call once more.
	response func(c *call, resp kmsg.Response) error
	note     string
}

// apis is THE table. Produce and Fetch have walkers of their own instead of request and response: see 00_produce.go and
// 01_fetch.go. A key that is not here does not exist for us; class refuse hides a key from ApiVersions.
func apis() []row {
	return []row{
		{0, 0, 13, "Produce", holdAtCutover, toNode, nil, nil, "walked; v0–2 are offered where brokers do, and answered with an error"},
		{1, 4, 18, "Fetch", free, toNode, nil, nil, "walked; v0–3 have formats that nobody needs any more"},
		{2, 1, 11, "ListOffsets", free, toNode, listOffsetsRequest, listOffsetsResponse, "v0 answers in another shape"},
		{3, 0, 13, "Metadata", free, toAny, metadataRequest, metadataResponse, "from what is known while no broker answers"},
		{4, 0, 0, "LeaderAndIsr", refuse, toNode, nil, nil, "between brokers"},
		{5, 0, 0, "StopReplica", refuse, toNode, nil, nil, "between brokers"},
		{6, 0, 0, "UpdateMetadata", refuse, toNode, nil, nil, "between brokers"},
		{7, 0, 0, "ControlledShutdown", refuse, toNode, nil, nil, "between brokers"},
		{8, 2, 10, "OffsetCommit", holdAtCutover, toCoordinator, offsetCommitRequest, offsetCommitResponse, "v0–1 store elsewhere"},
		{9, 1, 10, "OffsetFetch", free, toCoordinator, offsetFetchRequest, offsetFetchResponse, "v0 reads from elsewhere"},
		{10, 0, 6, "FindCoordinator", free, toAny, findCoordinatorRequest, findCoordinatorResponse, "the coordinator of a group is shown as one virtual node for ever"},
		{11, 0, 9, "JoinGroup", waitAtCutover, toCoordinator, joinGroupRequest, joinGroupResponse, "a group that is moved must not begin to rebalance"},
		{12, 0, 4, "Heartbeat", free, toCoordinator, heartbeatRequest, heartbeatResponse, ""},
		{13, 0, 5, "LeaveGroup", holdAtCutover, toCoordinator, leaveGroupRequest, leaveGroupResponse, "held: it changes the members that are moved"},
		{14, 0, 5, "SyncGroup", waitAtCutover, toCoordinator, syncGroupRequest, syncGroupResponse, ""},
		{15, 0, 6, "DescribeGroups", free, toAny, describeGroupsRequest, describeGroupsResponse, "answered here, from every coordinator"},
		{16, 0, 5, "ListGroups", free, toNode, listGroupsRequest, listGroupsResponse, "clients ask every node"},
		{17, 0, 0, "SaslHandshake", refuse, toNode, nil, nil, "clients authenticate to nobody yet; links use the cluster's own login"},
		{18, 0, 4, "ApiVersions", free, toAny, nil, nil, "always answered here, whatever the version"},
		{19, 2, 7, "CreateTopics", holdAtCutover, toController, createTopicsRequest, createTopicsResponse, ""},
		{20, 1, 6, "DeleteTopics", holdAtCutover, toController, deleteTopicsRequest, deleteTopicsResponse, ""},
		{21, 0, 2, "DeleteRecords", holdAtCutover, toNode, deleteRecordsRequest, deleteRecordsResponse, ""},
		{22, 0, 5, "InitProducerId", holdAtCutover, toNode, initProducerIDRequest, initProducerIDResponse, "without a transactional id alone"},
		{23, 2, 4, "OffsetForLeaderEpoch", free, toNode, offsetForLeaderEpochRequest, offsetForLeaderEpochResponse, "v0–1 do not say the current epoch"},
		{24, 0, 0, "AddPartitionsToTxn", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{25, 0, 0, "AddOffsetsToTxn", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{26, 0, 0, "EndTxn", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{27, 0, 0, "WriteTxnMarkers", refuse, toNode, nil, nil, "between brokers"},
		{28, 0, 0, "TxnOffsetCommit", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{29, 0, 0, "DescribeAcls", refuse, toNode, nil, nil, "principals of the clusters are not those of clients"},
		{30, 0, 0, "CreateAcls", refuse, toNode, nil, nil, "principals of the clusters are not those of clients"},
		{31, 0, 0, "DeleteAcls", refuse, toNode, nil, nil, "principals of the clusters are not those of clients"},
		{32, 1, 4, "DescribeConfigs", free, toNode, describeConfigsRequest, describeConfigsResponse, "topics, and brokers by virtual node"},
		{33, 0, 0, "AlterConfigs", refuse, toNode, nil, nil, "replaces what it does not name; IncrementalAlterConfigs does not"},
		{34, 0, 0, "AlterReplicaLogDirs", refuse, toNode, nil, nil, "names directories of real brokers"},
		{35, 0, 0, "DescribeLogDirs", refuse, toNode, nil, nil, "names directories of real brokers"},
		{36, 0, 0, "SaslAuthenticate", refuse, toNode, nil, nil, "clients authenticate to nobody yet"},
		{37, 0, 3, "CreatePartitions", holdAtCutover, toController, createPartitionsRequest, createPartitionsResponse, ""},
		{38, 0, 0, "CreateDelegationToken", refuse, toNode, nil, nil, "valid on one cluster alone"},
		{39, 0, 0, "RenewDelegationToken", refuse, toNode, nil, nil, "valid on one cluster alone"},
		{40, 0, 0, "ExpireDelegationToken", refuse, toNode, nil, nil, "valid on one cluster alone"},
		{41, 0, 0, "DescribeDelegationToken", refuse, toNode, nil, nil, "valid on one cluster alone"},
		{42, 0, 3, "DeleteGroups", holdAtCutover, toAny, deleteGroupsRequest, deleteGroupsResponse, "answered here, from every coordinator"},
		{43, 0, 0, "ElectLeaders", refuse, toNode, nil, nil, "concerns the brokers of one cluster"},
		{44, 0, 1, "IncrementalAlterConfigs", holdAtCutover, toNode, incrementalAlterConfigsRequest, incrementalAlterConfigsResponse, "topics alone"},
		{45, 0, 0, "AlterPartitionReassignments", refuse, toNode, nil, nil, "concerns the brokers of one cluster"},
		{46, 0, 0, "ListPartitionReassignments", refuse, toNode, nil, nil, "concerns the brokers of one cluster"},
		{47, 0, 0, "OffsetDelete", holdAtCutover, toCoordinator, offsetDeleteRequest, offsetDeleteResponse, ""},
		{48, 0, 0, "DescribeClientQuotas", refuse, toNode, nil, nil, "principals of the clusters are not those of clients"},
		{49, 0, 0, "AlterClientQuotas", refuse, toNode, nil, nil, "principals of the clusters are not those of clients"},
		{50, 0, 0, "DescribeUserScramCredentials", refuse, toNode, nil, nil, "users of the clusters are not those of clients"},
		{51, 0, 0, "AlterUserScramCredentials", refuse, toNode, nil, nil, "users of the clusters are not those of clients"},
		{52, 0, 0, "Vote", refuse, toNode, nil, nil, "between controllers"},
		{53, 0, 0, "BeginQuorumEpoch", refuse, toNode, nil, nil, "between controllers"},
		{54, 0, 0, "EndQuorumEpoch", refuse, toNode, nil, nil, "between controllers"},
		{55, 0, 0, "DescribeQuorum", refuse, toNode, nil, nil, "names real controllers"},
		{56, 0, 0, "AlterPartition", refuse, toNode, nil, nil, "between brokers"},
		{57, 0, 0, "UpdateFeatures", refuse, toNode, nil, nil, "would change what the virtual cluster offers"},
		{58, 0, 0, "Envelope", refuse, toNode, nil, nil, "between brokers"},
		{59, 0, 0, "FetchSnapshot", refuse, toNode, nil, nil, "between controllers"},
		{60, 0, 2, "DescribeCluster", free, toAny, describeClusterRequest, describeClusterResponse, ""},
		{61, 0, 0, "DescribeProducers", refuse, toNode, nil, nil, "shows producer ids of one cluster"},
		{62, 0, 0, "BrokerRegistration", refuse, toNode, nil, nil, "between brokers"},
		{63, 0, 0, "BrokerHeartbeat", refuse, toNode, nil, nil, "between brokers"},
		{64, 0, 0, "UnregisterBroker", refuse, toNode, nil, nil, "concerns the brokers of one cluster"},
		{65, 0, 0, "DescribeTransactions", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{66, 0, 0, "ListTransactions", refuse, toNode, nil, nil, "transactions are not carried over yet"},
		{67, 0, 0, "AllocateProducerIds", refuse, toNode, nil, nil, "between brokers"},
		{68, 0, 0, "ConsumerGroupHeartbeat", refuse, toNode, nil, nil, "KIP-848 groups are not carried over yet; clients fall back to the classic protocol"},
		{69, 0, 0, "ConsumerGroupDescribe", refuse, toNode, nil, nil, "KIP-848 groups are not carried over yet"},
		{70, 0, 0, "ControllerRegistration", refuse, toNode, nil, nil, "between controllers"},
		{71, 0, 0, "GetTelemetrySubscriptions", refuse, toNode, nil, nil, "nobody receives telemetry; hidden, clients are quiet about it"},
		{72, 0, 0, "PushTelemetry", refuse, toNode, nil, nil, "nobody receives telemetry"},
		{73, 0, 0, "AssignReplicasToDirs", refuse, toNode, nil, nil, "between brokers"},
		{74, 0, 0, "ListConfigResources", refuse, toNode, nil, nil, "lists resources by names of one cluster"},
		{75, 0, 0, "DescribeTopicPartitions", refuse, toNode, nil, nil, "clients fall back to Metadata"},
		{76, 0, 0, "ShareGroupHeartbeat", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{77, 0, 0, "ShareGroupDescribe", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{78, 0, 0, "ShareFetch", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{79, 0, 0, "ShareAcknowledge", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{80, 0, 0, "AddRaftVoter", refuse, toNode, nil, nil, "between controllers"},
		{81, 0, 0, "RemoveRaftVoter", refuse, toNode, nil, nil, "between controllers"},
		{82, 0, 0, "UpdateRaftVoter", refuse, toNode, nil, nil, "between controllers"},
		{83, 0, 0, "InitializeShareGroupState", refuse, toNode, nil, nil, "between brokers"},
		{84, 0, 0, "ReadShareGroupState", refuse, toNode, nil, nil, "between brokers"},
		{85, 0, 0, "WriteShareGroupState", refuse, toNode, nil, nil, "between brokers"},
		{86, 0, 0, "DeleteShareGroupState", refuse, toNode, nil, nil, "between brokers"},
		{87, 0, 0, "ReadShareGroupStateSummary", refuse, toNode, nil, nil, "between brokers"},
		{88, 0, 0, "StreamsGroupHeartbeat", refuse, toNode, nil, nil, "streams groups are not carried over yet"},
		{89, 0, 0, "StreamsGroupDescribe", refuse, toNode, nil, nil, "streams groups are not carried over yet"},
		{90, 0, 0, "DescribeShareGroupOffsets", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{91, 0, 0, "AlterShareGroupOffsets", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{92, 0, 0, "DeleteShareGroupOffsets", refuse, toNode, nil, nil, "share groups are not carried over yet"},
		{93, 0, 0, "StreamsGroupTopologyDescriptionUpdate", refuse, toNode, nil, nil, "streams groups are not carried over yet"},
		{94, 0, 0, "UnregisterController", refuse, toNode, nil, nil, "between controllers"},
	}
}
