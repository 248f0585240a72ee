// The jobs of driver_lines.py and the member of group_member.py with franz-go. They are called
// alike and print the same lines.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	firstTimestamp = 1_700_000_000_000
	patience       = 30 * time.Second
	large          = 900_000
	tooLarge       = 2_000_000
	clientLimit    = 4_000_000
	longValue      = 1000
	burst          = 25
	pause          = 20 * time.Millisecond
)

type conf struct {
	Bootstrap   string
	Topic       string
	Partitions  int32
	Count       int
	Isolation   string
	Timestamp   *int64
	Timestamps  []int64
	Group       string
	Client      string
	Instance    string
	Assignor    string
	SessionMs   int64 `json:"session_ms"`
	HeartbeatMs int64 `json:"heartbeat_ms"`
	ID          string
	TimeoutMs   int64 `json:"timeout_ms"`
	Steps       [][]any
	Source      string
	AbortEvery  int `json:"abort_every"`
}

type line map[string]any

func main() {
	var c conf
	check(json.Unmarshal([]byte(os.Args[2]), &c))
	jobs := map[string]func(context.Context, conf){
		"produce":   produce,
		"read":      read,
		"offsets":   offsets,
		"admin":     admin,
		"large":     sendLarge,
		"transact":  transact,
		"transform": transform,
		"member":    member,
	}
	jobs[os.Args[1]](context.Background(), c)
}

// -- lines ------------------------------------------------------------------------------------

var saying sync.Mutex

func say(what line) {
	text, err := json.Marshal(what)
	check(err)
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shown(value []byte) any {
	if value == nil {
		return nil
	}
	if len(value) > longValue {
		sum := sha256.Sum256(value)
		return hex.EncodeToString(sum[:])
	}
	return string(value)
}

func largeValue(size int) []byte {
	value := make([]byte, size)
	for at := range value {
		value[at] = byte(at % 1000 * 7 % 251)
	}
	return value
}

func until(look func() bool, what string) {
	for end := time.Now().Add(patience); !look(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			check(errors.New("it never came: " + what))
		}
	}
}

func client(c conf, more ...kgo.Opt) *kgo.Client {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}, more...)
	made, err := kgo.NewClient(all...)
	check(err)
	return made
}

// -- jobs -------------------------------------------------------------------------------------

func sample(c conf, number int) *kgo.Record {
	text := strconv.Itoa(number)
	return &kgo.Record{
		Topic:     c.Topic,
		Partition: int32(number) % c.Partitions,
		Timestamp: time.UnixMilli(firstTimestamp + int64(number)),
		Key:       []byte("key-" + strconv.Itoa(number%8)),
		Value:     []byte(fmt.Sprintf("%08d", number) + strings.Repeat("-tide", 12)),
		Headers: []kgo.RecordHeader{
			{Key: "number", Value: []byte(text)},
			{Key: "empty", Value: []byte{}},
		},
	}
}

func produce(ctx context.Context, c conf) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(),
		kgo.GzipCompression(),
		kgo.SnappyCompression(),
		kgo.Lz4Compression(),
		kgo.ZstdCompression(),
	}
	share := c.Count / len(codecs)
	for at, codec := range codecs {
		// Idempotent and with acks=all unless told otherwise.
		producer := client(
			c,
			kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(5*time.Millisecond),
		)
		for number := at * share; number < (at+1)*share; number++ {
			if number%burst == 0 {
				time.Sleep(pause)
			}
			producer.Produce(ctx, sample(c, number), func(told *kgo.Record, err error) {
				if err != nil {
					say(line{"failed": []any{number, err.Error()}})
					return
				}
				say(line{"acked": []any{number, told.Partition, told.Offset}})
			})
		}
		check(producer.Flush(ctx))
		producer.Close()
	}
}

func read(ctx context.Context, c conf) {
	from := kgo.NewOffset().AtStart()
	if c.Timestamp != nil {
		from = kgo.NewOffset().AfterMilli(*c.Timestamp)
	}
	at := map[int32]kgo.Offset{}
	for number := range c.Partitions {
		at[number] = from
	}
	more := []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: at})}
	if c.Isolation == "read_committed" {
		more = append(more, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	consumer := client(c, more...)
	defer consumer.Close()
	for seen := 0; seen < c.Count; {
		fetched := consumer.PollFetches(ctx)
		fetched.EachRecord(func(record *kgo.Record) {
			headers := [][]any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, string(header.Value)})
			}
			say(line{"record": line{
				"partition": record.Partition,
				"offset":    record.Offset,
				"key":       shown(record.Key),
				"value":     shown(record.Value),
				"headers":   headers,
				"timestamp": record.Timestamp.UnixMilli(),
			}})
			seen++
		})
	}
}

func offsets(ctx context.Context, c conf) {
	administrator := kadm.NewClient(client(c))
	defer administrator.Close()
	told := func(found kadm.ListedOffsets, err error) map[int32]any {
		check(err)
		check(found.Error())
		byPartition := map[int32]any{}
		found.Each(func(one kadm.ListedOffset) { byPartition[one.Partition] = one.Offset })
		return byPartition
	}
	earliest := told(administrator.ListStartOffsets(ctx, c.Topic))
	latest := told(administrator.ListEndOffsets(ctx, c.Topic))
	at := []map[int32]any{}
	for _, timestamp := range c.Timestamps {
		found, err := administrator.ListOffsetsAfterMilli(ctx, timestamp, c.Topic)
		of := told(found, err)
		// It answers the end where nothing is that late.
		found.Each(func(one kadm.ListedOffset) {
			if one.Timestamp < 0 {
				of[one.Partition] = nil
			}
		})
		at = append(at, of)
	}
	say(line{"earliest": earliest, "latest": latest, "at": at})
}

func sendLarge(ctx context.Context, c conf) {
	producer := client(
		c,
		kgo.ProducerBatchMaxBytes(clientLimit),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	defer producer.Close()
	acked, err := producer.ProduceSync(
		ctx, &kgo.Record{Topic: c.Topic, Value: largeValue(large)},
	).First()
	check(err)
	_, refused := producer.ProduceSync(
		ctx, &kgo.Record{Topic: c.Topic, Value: largeValue(tooLarge)},
	).First()
	say(line{"acked": acked.Offset, "error": fmt.Sprint(refused)})
}

// -- transactions -----------------------------------------------------------------------------

func transactional(c conf, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.TransactionalID(c.ID),
		kgo.TransactionTimeout(time.Duration(c.TimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5 * time.Millisecond),
	}, more...)
}

func transact(ctx context.Context, c conf) {
	producer := client(c, transactional(c)...)
	defer producer.Close()
	told := bufio.NewReader(os.Stdin)
	for _, words := range c.Steps {
		step := words[0].(string)
		var err error
		switch step {
		case "init":
			_, _, err = producer.ProducerID(ctx)
		case "begin":
			err = producer.BeginTransaction()
		case "send":
			partition, value := int32(words[1].(float64)), []byte(words[2].(string))
			record := &kgo.Record{Topic: c.Topic, Partition: partition, Value: value}
			_, err = producer.ProduceSync(ctx, record).First()
		case "commit":
			err = producer.EndTransaction(ctx, kgo.TryCommit)
		case "abort":
			err = producer.EndTransaction(ctx, kgo.TryAbort)
		case "pause":
			say(line{"paused": true})
			_, _ = told.ReadString('\n')
			continue
		default:
			err = errors.New("unknown step " + step)
		}
		if err != nil {
			say(line{"failed": step, "error": err.Error()})
			return
		}
		say(line{"done": step})
	}
}

func transform(ctx context.Context, c conf) {
	session, err := kgo.NewGroupTransactSession(transactional(
		c,
		kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.SessionTimeout(time.Duration(c.SessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(c.SessionMs)*time.Millisecond/6),
		kgo.RequireStableFetchOffsets(),
	)...)
	check(err)
	for number := 1; ; {
		batch := session.PollRecords(ctx, burst)
		if batch.Empty() {
			continue
		}
		isAborted := number%c.AbortEvery == 0
		number++
		check(session.Begin())
		sent := kgo.AbortingFirstErrPromise(session.Client())
		batch.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Topic: c.Topic, Partition: record.Partition, Value: record.Value}
			session.Produce(ctx, copied, sent.Promise())
		})
		// End commits even if a record has failed.
		failed := sent.Err()
		if failed != nil {
			fmt.Fprintln(os.Stderr, failed)
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(!isAborted && failed == nil))
		check(err)
		if committed {
			say(line{"committed": batch.NumRecords()})
		} else {
			say(line{"aborted": batch.NumRecords()})
		}
	}
}

// -- administration ---------------------------------------------------------------------------

func admin(ctx context.Context, c conf) {
	administrator := kadm.NewClient(client(c))
	defer administrator.Close()
	metadata, err := administrator.BrokerMetadata(ctx)
	check(err)
	ids := metadata.Brokers.NodeIDs()
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	retention := "86400000"
	configs := map[string]*string{"retention.ms": &retention}
	_, err = administrator.CreateTopic(ctx, 2, 3, configs, c.Topic)
	check(err)
	_, exists := administrator.CreateTopic(ctx, 2, 3, configs, c.Topic)
	listed := func() bool {
		found, err := administrator.ListTopics(ctx)
		check(err)
		return found.Has(c.Topic)
	}
	until(listed, "the topic")
	grown, err := administrator.UpdatePartitions(ctx, 3, c.Topic)
	check(err)
	check(grown.Error())
	wanted := "7200000"
	altered, err := administrator.AlterTopicConfigs(
		ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &wanted}}, c.Topic,
	)
	check(err)
	check(altered[0].Err)
	var described kadm.TopicDetail
	until(func() bool {
		found, err := administrator.ListTopics(ctx, c.Topic)
		check(err)
		described = found[c.Topic]
		return len(described.Partitions) == 3
	}, "three partitions")
	low := deleteRecords(ctx, c, administrator)
	told := group(ctx, c, administrator)
	told["brokers"] = ids
	told["controller"] = metadata.Controller
	told["exists"] = fmt.Sprint(exists)
	told["partitions"] = len(described.Partitions)
	told["replicas"] = len(described.Partitions[0].Replicas)
	told["retention"] = config(ctx, administrator, c.Topic)
	told["low"] = low
	_, err = administrator.DeleteTopic(ctx, c.Topic)
	check(err)
	until(func() bool { return !listed() }, "no topic")
	told["gone"] = true
	say(told)
}

func config(ctx context.Context, administrator *kadm.Client, topic string) string {
	found, err := administrator.DescribeTopicConfigs(ctx, topic)
	check(err)
	for _, one := range found[0].Configs {
		if one.Key == "retention.ms" {
			return one.MaybeValue()
		}
	}
	return ""
}

func deleteRecords(ctx context.Context, c conf, administrator *kadm.Client) int64 {
	producer := client(c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for number := range 10 {
		value := []byte(strconv.Itoa(number))
		check(producer.ProduceSync(ctx, &kgo.Record{Topic: c.Topic, Value: value}).FirstErr())
	}
	before := kadm.Offsets{}
	before.AddOffset(c.Topic, 0, 5, -1)
	deleted, err := administrator.DeleteRecords(ctx, before)
	check(err)
	one, _ := deleted.Lookup(c.Topic, 0)
	check(one.Err)
	return one.LowWatermark
}

func group(ctx context.Context, c conf, administrator *kadm.Client) line {
	commit := func(offset int64) {
		wanted := kadm.Offsets{}
		wanted.AddOffset(c.Topic, 0, offset, -1)
		check(administrator.CommitAllOffsets(ctx, c.Group, wanted))
	}
	committed := func() int64 {
		found, err := administrator.FetchOffsets(ctx, c.Group)
		check(err)
		one, _ := found.Lookup(c.Topic, 0)
		return one.At
	}
	listed := func() bool {
		found, err := administrator.ListGroups(ctx)
		check(err)
		_, there := found[c.Group]
		return there
	}
	commit(7)
	told := line{"listed": listed(), "committed": committed()}
	described, err := administrator.DescribeGroups(ctx, c.Group)
	check(err)
	told["state"] = described[c.Group].State
	commit(6)
	told["altered"] = committed()
	_, err = administrator.DeleteGroup(ctx, c.Group)
	check(err)
	told["listed_after"] = listed()
	return told
}

// -- groups -----------------------------------------------------------------------------------

func member(ctx context.Context, c conf) {
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	more := []kgo.Opt{
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.ClientID(c.Client),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(c.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(c.HeartbeatMs) * time.Millisecond),
		kgo.Balancers(balancers[c.Assignor]),
	}
	mine := &assigned{topic: c.Topic, has: map[int32]bool{}}
	more = append(
		more,
		kgo.OnPartitionsAssigned(mine.add),
		kgo.OnPartitionsRevoked(mine.remove),
		kgo.OnPartitionsLost(mine.remove),
	)
	if c.Instance != "" {
		more = append(more, kgo.InstanceID(c.Instance))
	}
	consumer := client(c, more...)
	commands := listen()
	for {
		polling, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		fetched := consumer.PollFetches(polling)
		stop()
		fetched.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				say(line{"error": err.Error()})
			}
			if errors.Is(err, kerr.FencedInstanceID) {
				os.Exit(1)
			}
		})
		fetched.EachRecord(func(record *kgo.Record) {
			say(line{"record": []any{record.Partition, record.Offset, string(record.Value)}})
		})
		select {
		case command := <-commands:
			if command == "close" {
				if c.Instance == "" {
					check(consumer.LeaveGroupContext(ctx))
				}
				consumer.Close()
				return
			}
			commit(ctx, c, consumer, mine)
		default:
		}
	}
}

func commit(ctx context.Context, c conf, consumer *kgo.Client, mine *assigned) {
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		say(line{"error": err.Error()})
		return
	}
	found, err := kadm.NewClient(consumer).FetchOffsets(ctx, c.Group)
	if err != nil {
		say(line{"error": err.Error()})
		return
	}
	told := map[int32]any{}
	for _, partition := range mine.list() {
		told[partition] = nil
		if one, there := found.Lookup(c.Topic, partition); there {
			told[partition] = one.At
		}
	}
	say(line{"committed": told})
}

// What a member has; said whenever that changes.
type assigned struct {
	topic string
	lock  sync.Mutex
	has   map[int32]bool
}

func (a *assigned) add(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	a.change(topics[a.topic], true)
}

func (a *assigned) remove(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	a.change(topics[a.topic], false)
}

func (a *assigned) change(partitions []int32, has bool) {
	a.lock.Lock()
	for _, partition := range partitions {
		if has {
			a.has[partition] = true
		} else {
			delete(a.has, partition)
		}
	}
	a.lock.Unlock()
	say(line{"assigned": a.list()})
}

func (a *assigned) list() []int32 {
	a.lock.Lock()
	defer a.lock.Unlock()
	all := []int32{}
	for partition := range a.has {
		all = append(all, partition)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}

func listen() <-chan string {
	commands := make(chan string, 100)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			commands <- strings.TrimSpace(lines.Text())
		}
		commands <- "close"
	}()
	return commands
}
