package obs

// Metric names. Dashboards and alert rules in deploy/ use these; a test holds them to this list.
const (
	MetricLagRecords    = "switchback_replication_lag_records"
	MetricLagSeconds    = "switchback_replication_lag_seconds"
	MetricRecordAge     = "switchback_replication_record_age_seconds"
	MetricCopiedRecords = "switchback_replication_records_total"
	MetricCopiedBytes   = "switchback_replication_bytes_total"
	MetricLostRecords   = "switchback_replication_lost_records_total"
	MetricCheckpointAge = "switchback_checkpoint_age_seconds"
	MetricPumpState     = "switchback_pump_state"
	MetricPumps         = "switchback_pumps"
	MetricGaps          = "switchback_map_gaps"
	MetricJournalBytes  = "switchback_journal_bytes"
	MetricSlotsOwned    = "switchback_slots_owned"
	MetricSessions      = "switchback_sessions"
	MetricSessionCloses = "switchback_session_closes_total"
	MetricCalls         = "switchback_calls_total"
	MetricHeldCalls     = "switchback_held_calls"
	MetricBuffered      = "switchback_buffered_bytes"
	MetricClientBytes   = "switchback_client_bytes_total"
	MetricAddedLatency  = "switchback_added_latency_seconds"
	MetricDuplicates    = "switchback_produce_duplicates_total"
	MetricCutoverPhase  = "switchback_cutover_phase"
	MetricCutoverPause  = "switchback_cutover_pause_seconds"
	MetricCutovers      = "switchback_cutovers_total"
	MetricGeneration    = "switchback_generation"
	MetricActive        = "switchback_active"
	MetricReachable     = "switchback_cluster_reachable"
	MetricBuildInfo     = "switchback_build_info"
)

// Labels of metrics. A label is named as the log key of the same thing.
const (
	labelFlow           = KeyFlow
	labelTopic          = KeyTopic
	labelPartition      = KeyPartition
	labelGroup          = KeyGroup
	labelState          = KeyState
	labelVirtualCluster = KeyVirtualCluster
	labelCluster        = KeyCluster
	labelAPI            = KeyAPI
	labelReason         = KeyReason
	labelPhase          = KeyPhase
	labelMode           = KeyMode
	labelResult         = "result"
	labelDirection      = "direction"
)

// Log keys: the only field names that log lines use.
const (
	KeyTime           = "time"
	KeyInstance       = "instance"
	KeyVirtualCluster = "virtual_cluster"
	KeyCluster        = "cluster"
	KeyGeneration     = "generation"
	KeyFlow           = "flow"
	KeySlot           = "slot"
	KeyTopic          = "topic"
	KeyPartition      = "partition"
	KeyVirtual        = "virtual"  // a virtual offset
	KeyPhysical       = "physical" // a physical offset; KeyCluster says whose
	KeyRecords        = "records"
	KeyBytes          = "bytes"
	KeyLagRecords     = "lag_records"
	KeyLagMillis      = "lag_ms"
	KeyGroup          = "group"
	KeyMember         = "member"
	KeyProducerID     = "producer_id"
	KeyEpoch          = "epoch" // of a leader
	KeyProducerEpoch  = "producer_epoch"
	KeySequence       = "sequence"
	KeyClient         = "client" // remote address
	KeyClientID       = "client_id"
	KeyListener       = "listener"
	KeyBroker         = "broker" // host:port of a real broker
	KeyNode           = "node"   // a virtual node id
	KeyAPI            = "api"
	KeyVersion        = "version"
	KeyCorrelationID  = "correlation_id"
	KeyCutover        = "cutover" // its id
	KeyMode           = "mode"
	KeyPhase          = "phase"
	KeyFrom           = "from"
	KeyTo             = "to"
	KeyState          = "state"
	KeyReason         = "reason"
	KeyHint           = "hint"
	KeyCode           = "code" // a Kafka error code
	KeyCount          = "count"
	KeyMillis         = "ms"
	KeyPauseMillis    = "pause_ms"
	KeyAddress        = "address"
	KeyCommit         = "commit" // of the source this binary was built from
)
