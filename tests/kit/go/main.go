// A client of franz-go for tests: `franz ADDRESS VERB ARGUMENT...`.
//
// Records are lines of OFFSET KEY VALUE TIMESTAMP_MS, key and value as hexadecimal digits.
//
//	produce TOPIC             lines from standard input to partition 0, idempotent, acks=all
//	consume TOPIC START STOP  offsets [START, STOP) of partition 0
//	group TOPIC GROUP COUNT   COUNT records as the only member of a group, which commits them
//	time TOPIC TIMESTAMP_MS   the first offset of partition 0 with at least that time
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 60 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, verb string, arguments []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, numbers := arguments[0], arguments[1:]
	seed := kgo.SeedBrokers(address)
	switch verb {
	case "produce":
		return produce(ctx, topic, seed)
	case "consume":
		start, stop := number(numbers[0]), number(numbers[1])
		from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(start)}}
		return consume(ctx, stop-start, false, seed, kgo.ConsumePartitions(from))
	case "group":
		earliest := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
		of := kgo.ConsumerGroup(numbers[0])
		return consume(ctx, number(numbers[1]), true, seed, of, kgo.ConsumeTopics(topic), earliest, kgo.DisableAutoCommit())
	case "time":
		return offsetAt(ctx, topic, number(numbers[0]), seed)
	}
	return fmt.Errorf("no verb %q", verb)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func produce(ctx context.Context, topic string, options ...kgo.Opt) error {
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	options = append(options, manual, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AllowAutoTopicCreation())
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		key, wrongKey := hex.DecodeString(words[1])
		value, wrongValue := hex.DecodeString(words[2])
		if err := errors.Join(wrongKey, wrongValue); err != nil {
			return err
		}
		at := time.UnixMilli(number(words[3]))
		records = append(records, &kgo.Record{Topic: topic, Key: key, Value: value, Timestamp: at})
	}
	return errors.Join(lines.Err(), client.ProduceSync(ctx, records...).FirstErr())
}

func consume(ctx context.Context, count int64, commit bool, options ...kgo.Opt) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for count > 0 {
		fetches := client.PollRecords(ctx, int(count))
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			fmt.Fprintf(out, "%d %x %x %d\n", r.Offset, r.Key, r.Value, r.Timestamp.UnixMilli())
			count--
		})
	}
	if commit {
		return client.CommitUncommittedOffsets(ctx)
	}
	return nil
}

func offsetAt(ctx context.Context, topic string, timestamp int64, options ...kgo.Opt) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = timestamp
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	of.Partitions = append(of.Partitions, partition)
	request := kmsg.NewListOffsetsRequest()
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(response.Topics[0].Partitions[0].Offset)
	return nil
}
