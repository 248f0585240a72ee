/* Load from librdkafka, in a process of its own, so that the client's speed is C's.
 *
 * The library is the one inside the confluent-kafka wheel; its public functions are declared
 * here because the wheel has no headers. Prints one JSON object: messages, bytes, seconds,
 * CPU seconds of this process, and for latency the percentiles in microseconds.
 *
 *   librdkafka_load LIB produce BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 *   librdkafka_load LIB consume BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 *   librdkafka_load LIB latency BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 *   librdkafka_load LIB paced   BOOTSTRAP TOPIC PARTITIONS COUNT SIZE RATE [key=value ...]
 *   librdkafka_load LIB transact BOOTSTRAP TOPIC PARTITIONS COUNT SIZE PRODUCERS RECORDS [key=value ...]
 *   librdkafka_load LIB committed BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [key=value ...]
 * PARTITIONS is how many there are, or for `consume` FIRST-LAST. `latency` has one message in
 * flight; `paced` sends RATE a second, and its percentiles are from the send to the arrival at a
 * consumer in this process, and to the acknowledgement. `transact` commits COUNT transactions of
 * RECORDS records each, by PRODUCERS producers at once; its messages are transactions. `committed`
 * has one transaction of one record at a time, and its percentiles are from the send to the arrival
 * at a read-committed consumer in this process.
 * BOOTSTRAP "mock:N" is librdkafka's own mock cluster of N brokers, in this process.
 */
#include <dlfcn.h>
#include <pthread.h>
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

enum { PRODUCER = 0, CONSUMER = 1, BEGINNING = -2, END = -1, QUEUE_FULL = -184, PARTITION_EOF = -191 };

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
typedef struct rd_kafka_error_s rd_kafka_error_t;
static rd_kafka_error_t *(*init_transactions)(rd_kafka_t *, int);
static rd_kafka_error_t *(*begin_transaction)(rd_kafka_t *);
static rd_kafka_error_t *(*commit_transaction)(rd_kafka_t *, int);
static const char *(*error_string)(const rd_kafka_error_t *);

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
	FIND(init_transactions, "init_transactions");
	FIND(begin_transaction, "begin_transaction");
	FIND(commit_transaction, "commit_transaction");
	FIND(error_string, "error_string");
}

static int64_t delivered, failed;
static volatile int answered;
static double *acked; /* microseconds of each message that was sent with a pace */
static double seconds(clockid_t clock);

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
	(void)rk;
	(void)opaque;
	if (message->err) {
		if (!failed++)
			fprintf(stderr, "not delivered: %s\n", err2str(message->err));
	} else if (acked && message->private_) {
		double sent;
		memcpy(&sent, message->payload, sizeof sent);
		acked[delivered++] = (seconds(CLOCK_MONOTONIC) - sent) * 1e6;
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

static rd_kafka_queue_t *consume_from(rd_kafka_t *rk, rd_kafka_topic_t *topic, int first, int last,
				      int64_t offset) {
	rd_kafka_queue_t *queue = queue_new(rk);
	for (int partition = first; partition <= last; partition++)
		if (consume_start_queue(topic, partition, offset, queue)) {
			fprintf(stderr, "%s\n", err2str(last_error()));
			exit(1);
		}
	return queue;
}

static void run_consume(rd_kafka_t *rk, rd_kafka_topic_t *topic, int first, int last,
			int64_t count) {
	rd_kafka_queue_t *queue = consume_from(rk, topic, first, last, BEGINNING);
	rd_kafka_message_t *messages[AT_ONCE];
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

struct pace {
	rd_kafka_t *rk;
	rd_kafka_topic_t *topic;
	int partitions;
	int64_t count;
	size_t size;
	double rate;
};

/* Sends each message when it is due, and never waits for an answer. */
static void *send_paced(void *given) {
	struct pace *pace = given;
	char *pool = random_bytes(pace->size);
	double began = seconds(CLOCK_MONOTONIC);
	for (int64_t sent = 0; sent < pace->count;) {
		double now = seconds(CLOCK_MONOTONIC), due = began + sent / pace->rate;
		if (now < due) {
			double rest_s = due - now < 0.1 ? due - now : 0.1;
			struct timespec rest = {0, (long)(rest_s * 1e9)};
			nanosleep(&rest, NULL);
			poll_(pace->rk, 0);
			continue;
		}
		memcpy(pool, &now, sizeof now);
		if (produce(pace->topic, (int)(sent % pace->partitions), 0x2, pool, pace->size,
			    NULL, 0, pace))
			poll_(pace->rk, 1); /* the queue is full */
		else
			sent++;
	}
	while (delivered + failed < pace->count)
		poll_(pace->rk, 100);
	return NULL;
}

static void run_paced(struct pace *pace, const char *bootstrap, const char *name, double *took) {
	char fetch_at_once[] = "fetch.wait.max.ms=500";
	char *settings[] = {fetch_at_once};
	rd_kafka_t *reader = client(CONSUMER, bootstrap, 1, settings);
	rd_kafka_topic_t *topic = topic_new(reader, name, NULL);
	rd_kafka_queue_t *queue = consume_from(reader, topic, 0, pace->partitions - 1, END);
	rd_kafka_message_t *messages[AT_ONCE];
	/* Until one arrives from each partition the reader may not yet stand at the end. */
	for (int partition = 0; partition < pace->partitions; partition++)
		for (int arrived = 0; !arrived;) {
			produce(pace->topic, partition, 0x2, "warm", 4, NULL, 0, NULL);
			flush(pace->rk, 30000);
			ssize_t n = consume_batch_queue(queue, 200, messages, AT_ONCE);
			for (ssize_t i = 0; i < n; i++) {
				arrived |= !messages[i]->err && messages[i]->partition == partition;
				message_destroy(messages[i]);
			}
		}
	delivered = failed = 0;
	acked = calloc(pace->count, sizeof *acked);
	pthread_t sender;
	pthread_create(&sender, NULL, send_paced, pace);
	for (int64_t arrived = 0; arrived < pace->count && !failed;) {
		/* One at a time: it waits for as many as it is asked for. */
		ssize_t n = consume_batch_queue(queue, 100, messages, 1);
		double now = seconds(CLOCK_MONOTONIC), sent;
		for (ssize_t i = 0; i < n; i++) {
			if (!messages[i]->err && messages[i]->len == pace->size) {
				memcpy(&sent, messages[i]->payload, sizeof sent);
				took[arrived++] = (now - sent) * 1e6;
			}
			message_destroy(messages[i]);
		}
	}
	pthread_join(sender, NULL);
}

enum { TRANSACTION_MS = 60000, OPTIONS_MAX = 32 };

struct transactor {
	rd_kafka_t *rk;
	rd_kafka_topic_t *topic;
	int partitions, number, records;
	int64_t count;
	char *payload;
	size_t size;
	double *took;
};

static void must(rd_kafka_error_t *error) {
	if (error) {
		fprintf(stderr, "%s\n", error_string(error));
		exit(1);
	}
}

/* The client of one producer, whose transactional id is the topic's name and its number. */
static struct transactor transactor(const char *bootstrap, const char *topic, int partitions,
				    int number, size_t size, int argc, char **argv) {
	char id[300], *options[OPTIONS_MAX];
	snprintf(id, sizeof id, "transactional.id=%s-%d", topic, number);
	if (argc >= OPTIONS_MAX) {
		fprintf(stderr, "too many options\n");
		exit(2);
	}
	for (int i = 0; i < argc; i++)
		options[i] = strdup(argv[i]);
	options[argc] = id;
	struct transactor it = {.partitions = partitions, .number = number, .records = 1};
	it.rk = client(PRODUCER, bootstrap, argc + 1, options);
	it.topic = topic_new(it.rk, topic, NULL);
	it.payload = random_bytes(size), it.size = size;
	must(init_transactions(it.rk, TRANSACTION_MS));
	return it;
}

/* Record n of a transaction goes to the partition after that of record n - 1. */
static void transact_once(struct transactor *it) {
	must(begin_transaction(it->rk));
	for (int n = 0; n < it->records; n++)
		while (produce(it->topic, (it->number + n) % it->partitions, 0x2, it->payload, it->size,
			       NULL, 0, NULL)) {
			if (last_error() != QUEUE_FULL) {
				fprintf(stderr, "%s\n", err2str(last_error()));
				exit(1);
			}
			poll_(it->rk, 1);
		}
	must(commit_transaction(it->rk, TRANSACTION_MS));
}

static void *transact(void *given) {
	struct transactor *it = given;
	for (int64_t i = 0; i < it->count; i++) {
		double began = seconds(CLOCK_MONOTONIC);
		transact_once(it);
		it->took[i] = (seconds(CLOCK_MONOTONIC) - began) * 1e6;
	}
	return NULL;
}

static void run_transact(struct transactor *all, int producers) {
	pthread_t *threads = calloc(producers, sizeof *threads);
	for (int n = 0; n < producers; n++)
		pthread_create(&threads[n], NULL, transact, &all[n]);
	for (int n = 0; n < producers; n++)
		pthread_join(threads[n], NULL);
}

/* Returns when a record has arrived. */
static void await_record(rd_kafka_queue_t *queue) {
	rd_kafka_message_t *message;
	for (int arrived = 0; !arrived;)
		if (consume_batch_queue(queue, 100, &message, 1) == 1) {
			arrived = !message->err;
			message_destroy(message);
		}
}

static void run_committed(struct transactor *it, rd_kafka_queue_t *queue) {
	for (int64_t i = 0; i < it->count; i++) {
		double began = seconds(CLOCK_MONOTONIC);
		transact_once(it);
		await_record(queue);
		it->took[i] = (seconds(CLOCK_MONOTONIC) - began) * 1e6;
	}
}

static void print_percentiles(const char *name, double *took, int64_t count) {
	qsort(took, count, sizeof *took, by_value);
	printf(", \"%sp50_us\": %.1f, \"%sp99_us\": %.1f, \"%sp999_us\": %.1f", name,
	       took[count / 2], name, took[count * 99 / 100], name, took[count * 999 / 1000]);
}

static void print_result(int64_t messages, int64_t bytes, double wall, double cpu) {
	printf("{\"messages\": %lld, \"failed\": %lld, \"bytes\": %lld, \"seconds\": %.6f, "
	       "\"client_cpu\": %.6f",
	       (long long)messages, (long long)failed, (long long)bytes, wall, cpu);
}

/* `transact` and `committed`: the first transaction of each producer is not measured. */
static int main_of_transactions(int argc, char **argv) {
	int is_committed = !strcmp(argv[2], "committed"), own = is_committed ? 8 : 10;
	if (argc < own) {
		fprintf(stderr, "usage: see the top of librdkafka_load.c\n");
		return 2;
	}
	int partitions = atoi(argv[5]);
	int producers = is_committed ? 1 : atoi(argv[8]), records = is_committed ? 1 : atoi(argv[9]);
	int64_t each = atoll(argv[6]) / producers, count = each * producers;
	size_t size = atoll(argv[7]);
	double *took = calloc(count, sizeof *took);
	struct transactor *all = calloc(producers, sizeof *all);
	for (int n = 0; n < producers; n++) {
		all[n] = transactor(argv[3], argv[4], partitions, n, size, argc - own, argv + own);
		all[n].count = each, all[n].records = records, all[n].took = took + n * each;
		transact_once(&all[n]);
	}
	rd_kafka_queue_t *queue = NULL;
	if (is_committed) {
		char committed[] = "isolation.level=read_committed";
		char *settings[] = {committed};
		rd_kafka_t *reader = client(CONSUMER, argv[3], 1, settings);
		queue = consume_from(reader, topic_new(reader, argv[4], NULL), 0, 0, BEGINNING);
		await_record(queue);
	}
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), began = seconds(CLOCK_MONOTONIC);
	if (is_committed)
		run_committed(all, queue);
	else
		run_transact(all, producers);
	double wall = seconds(CLOCK_MONOTONIC) - began;
	print_result(count, count * records * size, wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	print_percentiles("", took, count);
	printf("}\n");
	fflush(stdout);
	_Exit(failed ? 1 : 0);
}

int main(int argc, char **argv) {
	if (argc < 8) {
		fprintf(stderr, "usage: see the top of librdkafka_load.c\n");
		return 2;
	}
	load(argv[1]);
	const char *work = argv[2];
	if (!strcmp(work, "transact") || !strcmp(work, "committed"))
		return main_of_transactions(argc, argv);
	char *dash = strchr(argv[5], '-');
	int first = dash ? atoi(argv[5]) : 0, last = dash ? atoi(dash + 1) : atoi(argv[5]) - 1;
	int partitions = last + 1;
	int64_t count = atoll(argv[6]);
	size_t size = atoll(argv[7]);
	int kind = strcmp(work, "consume") ? PRODUCER : CONSUMER;
	int is_paced = !strcmp(work, "paced");
	double rate = is_paced && argc > 8 ? atof(argv[8]) : 0;
	if (is_paced && rate <= 0) {
		fprintf(stderr, "paced needs a rate above 0\n");
		return 2;
	}
	rd_kafka_t *rk = client(kind, argv[3], argc - 8 - is_paced, argv + 8 + is_paced);
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
		run_consume(rk, topic, first, last, count);
	else {
		took = calloc(count, sizeof *took);
		struct pace pace = {rk, topic, partitions, count, size, rate};
		if (is_paced)
			run_paced(&pace, argv[3], argv[4], took);
		else
			run_latency(rk, topic, count, size, took);
	}
	double wall = seconds(CLOCK_MONOTONIC) - began;
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	print_result(delivered, delivered * size, wall, cpu);
	if (took)
		print_percentiles("", took, count);
	if (acked)
		print_percentiles("ack_", acked, delivered);
	printf("}\n");
	fflush(stdout);
	_Exit(failed ? 1 : 0);
}
