/* Load from librdkafka, in a process of its own, so that the client's speed is C's.
 *
 * The library is the one inside the confluent-kafka wheel; its public functions are declared
 * here because the wheel has no headers. Prints one JSON object: messages, bytes, seconds,
 * CPU seconds of this process, and for latency the percentiles in microseconds.
 *
 *   librdkafka_load LIB produce BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 *   librdkafka_load LIB consume BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 *   librdkafka_load LIB latency BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 * BOOTSTRAP "mock:N" is librdkafka's own mock cluster of N brokers, in this process.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_message_s {
	int err;
	rd_kafka_topic_t *rkt;
	int32_t partition;
	void *payload;
	size_t len;
	void *key;
	size_t key_len;
	int64_t offset;
	void *private_;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1, BEGINNING = -2, QUEUE_FULL = -184, PARTITION_EOF = -191 };

static rd_kafka_conf_t *(*conf_new)(void);
static int (*conf_set)(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
static void (*conf_set_dr_msg_cb)(rd_kafka_conf_t *,
				  void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
static rd_kafka_t *(*new_)(int, rd_kafka_conf_t *, char *, size_t);
static rd_kafka_topic_t *(*topic_new)(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
static int (*produce_batch)(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
static int (*produce)(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*poll_)(rd_kafka_t *, int);
static int (*flush)(rd_kafka_t *, int);
static int (*last_error)(void);
static const char *(*err2str)(int);
static rd_kafka_queue_t *(*queue_new)(rd_kafka_t *);
static int (*consume_start_queue)(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
static ssize_t (*consume_batch_queue)(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
static void (*message_destroy)(rd_kafka_message_t *);

static void *find(void *library, const char *name) {
	void *found = dlsym(library, name);
	if (!found) {
		fprintf(stderr, "librdkafka has no %s\n", name);
		exit(2);
	}
	return found;
}

static void load(const char *path) {
	void *library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
#define FIND(variable, name) *(void **)&variable = find(library, "rd_kafka_" name)
	FIND(conf_new, "conf_new");
	FIND(conf_set, "conf_set");
	FIND(conf_set_dr_msg_cb, "conf_set_dr_msg_cb");
	FIND(new_, "new");
	FIND(topic_new, "topic_new");
	FIND(produce_batch, "produce_batch");
	FIND(produce, "produce");
	FIND(poll_, "poll");
	FIND(flush, "flush");
	FIND(last_error, "last_error");
	FIND(err2str, "err2str");
	FIND(queue_new, "queue_new");
	FIND(consume_start_queue, "consume_start_queue");
	FIND(consume_batch_queue, "consume_batch_queue");
	FIND(message_destroy, "message_destroy");
}

static int64_t delivered, failed;
static volatile int answered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
	(void)rk;
	(void)opaque;
	if (message->err) {
		if (!failed++)
			fprintf(stderr, "not delivered: %s\n", err2str(message->err));
	} else
		delivered++;
	answered = 1;
}

static double seconds(clockid_t clock) {
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void configure(rd_kafka_conf_t *conf, const char *name, const char *value) {
	char problem[512];
	if (conf_set(conf, name, value, problem, sizeof problem)) {
		fprintf(stderr, "%s\n", problem);
		exit(2);
	}
}

static rd_kafka_t *client(int kind, const char *bootstrap, int argc, char **argv) {
	char problem[512];
	rd_kafka_conf_t *conf = conf_new();
	if (!strncmp(bootstrap, "mock:", 5))
		configure(conf, "test.mock.num.brokers", bootstrap + 5);
	else
		configure(conf, "bootstrap.servers", bootstrap);
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		*value++ = 0;
		configure(conf, argv[i], value);
	}
	if (kind == PRODUCER)
		conf_set_dr_msg_cb(conf, on_delivery);
	rd_kafka_t *rk = new_(kind, conf, problem, sizeof problem);
	if (!rk) {
		fprintf(stderr, "%s\n", problem);
		exit(2);
	}
	return rk;
}

/* Every message has its own stretch of one random buffer: nothing repeats within a batch. */
static char *random_bytes(size_t size) {
	char *bytes = malloc(size);
	uint64_t state = 88172645463325252ull;
	for (size_t i = 0; i < size; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		bytes[i] = (char)state;
	}
	return bytes;
}

enum { AT_ONCE = 1000, POOL = 16 << 20 };

static void run_produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, int64_t count,
			size_t size) {
	char *pool = random_bytes(POOL + size);
	rd_kafka_message_t *batch = calloc(AT_ONCE, sizeof *batch);
	size_t at = 0;
	int partition = 0;
	for (int64_t sent = 0; sent < count;) {
		int n = count - sent < AT_ONCE ? (int)(count - sent) : AT_ONCE;
		for (int i = 0; i < n; i++) {
			batch[i].err = 0;
			batch[i].payload = pool + at;
			batch[i].len = size;
			at = (at + size) % POOL;
		}
		int begin = 0;
		while (begin < n) {
			/* RD_KAFKA_MSG_F_COPY: what most programs do. */
			begin += produce_batch(topic, partition, 0x2, batch + begin, n - begin);
			poll_(rk, begin < n ? 1 : 0);
		}
		sent += n;
		partition = (partition + 1) % partitions;
	}
	while (delivered + failed < count)
		poll_(rk, 100);
}

static void run_consume(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, int64_t count) {
	rd_kafka_queue_t *queue = queue_new(rk);
	rd_kafka_message_t *messages[AT_ONCE];
	for (int partition = 0; partition < partitions; partition++)
		if (consume_start_queue(topic, partition, BEGINNING, queue)) {
			fprintf(stderr, "%s\n", err2str(last_error()));
			exit(1);
		}
	while (delivered < count) {
		ssize_t n = consume_batch_queue(queue, 1000, messages, AT_ONCE);
		for (ssize_t i = 0; i < n; i++) {
			if (!messages[i]->err)
				delivered++;
			message_destroy(messages[i]);
		}
	}
}

static void run_latency(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t count, size_t size,
			double *took) {
	char *pool = random_bytes(size);
	for (int64_t i = 0; i < count; i++) {
		double began = seconds(CLOCK_MONOTONIC);
		answered = 0;
		if (produce(topic, 0, 0x2, pool, size, NULL, 0, NULL)) {
			fprintf(stderr, "%s\n", err2str(last_error()));
			exit(1);
		}
		while (!answered)
			poll_(rk, 1000);
		took[i] = (seconds(CLOCK_MONOTONIC) - began) * 1e6;
	}
}

int main(int argc, char **argv) {
	if (argc < 8) {
		fprintf(stderr, "usage: see the top of librdkafka_load.c\n");
		return 2;
	}
	load(argv[1]);
	const char *work = argv[2];
	int partitions = atoi(argv[5]);
	int64_t count = atoll(argv[6]);
	size_t size = atoll(argv[7]);
	int kind = strcmp(work, "consume") ? PRODUCER : CONSUMER;
	rd_kafka_t *rk = client(kind, argv[3], argc - 8, argv + 8);
	rd_kafka_topic_t *topic = topic_new(rk, argv[4], NULL);
	double *took = NULL;
	if (kind == PRODUCER) {
		/* The first message finds the leader; it is not measured. */
		produce(topic, 0, 0x2, "warm", 4, NULL, 0, NULL);
		flush(rk, 30000);
		delivered = 0;
	}
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), began = seconds(CLOCK_MONOTONIC);
	if (!strcmp(work, "produce"))
		run_produce(rk, topic, partitions, count, size);
	else if (!strcmp(work, "consume"))
		run_consume(rk, topic, partitions, count);
	else {
		took = calloc(count, sizeof *took);
		run_latency(rk, topic, count, size, took);
	}
	double wall = seconds(CLOCK_MONOTONIC) - began;
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"messages\": %lld, \"failed\": %lld, \"bytes\": %lld, \"seconds\": %.6f, "
	       "\"client_cpu\": %.6f",
	       (long long)delivered, (long long)failed, (long long)(delivered * size), wall, cpu);
	if (took) {
		qsort(took, count, sizeof *took, by_value);
		printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f", took[count / 2],
		       took[count * 99 / 100], took[count * 999 / 1000]);
	}
	printf("}\n");
	fflush(stdout);
	_Exit(failed ? 1 : 0);
}
