/* One request frame, sent over and over: how many answers a second?
 *
 *   pipelined_requests HOST PORT FRAME_FILE COUNT CONNECTIONS WINDOW
 * FRAME_FILE holds a whole frame with its length prefix. WINDOW requests are kept in flight
 * on each connection. Answers are counted, not read. Prints one JSON object.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct line {
	int fd;
	int in_flight;
	size_t unsent;         /* of the frame under way */
	uint32_t skip;         /* bytes of the answer under way */
	unsigned char head[4]; /* its length, as far as it came */
	int head_size;
};

static double seconds(clockid_t clock) {
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static int64_t take(struct line *line, unsigned char *bytes, ssize_t count) {
	int64_t answers = 0;
	while (count > 0) {
		if (line->skip) {
			uint32_t n = count < line->skip ? (uint32_t)count : line->skip;
			line->skip -= n;
			bytes += n;
			count -= n;
			if (!line->skip)
				answers++;
		} else {
			line->head[line->head_size++] = *bytes++;
			count--;
			if (line->head_size == 4) {
				uint32_t length;
				memcpy(&length, line->head, 4);
				line->skip = ntohl(length);
				line->head_size = 0;
			}
		}
	}
	return answers;
}

int main(int argc, char **argv) {
	if (argc != 7) {
		fprintf(stderr, "usage: see the top of pipelined_requests.c\n");
		return 2;
	}
	FILE *file = fopen(argv[3], "rb");
	if (!file)
		fail(argv[3]);
	static unsigned char frame[8 << 20], answer[1 << 20];
	size_t size = fread(frame, 1, sizeof frame, file);
	int64_t count = atoll(argv[4]), sent = 0, got = 0;
	int lines = atoi(argv[5]), window = atoi(argv[6]);
	struct line *line = calloc(lines, sizeof *line);
	struct pollfd *polled = calloc(lines, sizeof *polled);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &address.sin_addr);
	for (int i = 0; i < lines; i++) {
		int one = 1;
		line[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		setsockopt(line[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		connect(line[i].fd, (struct sockaddr *)&address, sizeof address);
		polled[i].fd = line[i].fd;
	}
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), began = seconds(CLOCK_MONOTONIC);
	while (got < count) {
		for (int i = 0; i < lines; i++) {
			int more = line[i].unsent || (line[i].in_flight < window && sent < count);
			polled[i].events = POLLIN | (more ? POLLOUT : 0);
		}
		if (poll(polled, lines, 10000) <= 0) {
			fprintf(stderr, "no answer for 10 s\n");
			return 1;
		}
		for (int i = 0; i < lines; i++) {
			struct line *l = &line[i];
			if (polled[i].revents & (POLLERR | POLLHUP)) {
				fprintf(stderr, "the broker closed the connection\n");
				return 1;
			}
			while ((polled[i].revents & POLLOUT) &&
			       (l->unsent || (l->in_flight < window && sent < count))) {
				if (!l->unsent) {
					l->unsent = size;
					l->in_flight++;
					sent++;
				}
				ssize_t n = write(l->fd, frame + size - l->unsent, l->unsent);
				if (n < 0)
					break;
				l->unsent -= n;
			}
			if (polled[i].revents & POLLIN) {
				ssize_t n = read(l->fd, answer, sizeof answer);
				if (n == 0) {
					fprintf(stderr, "the broker closed the connection\n");
					return 1;
				}
				int64_t answers = take(l, answer, n);
				l->in_flight -= answers;
				got += answers;
			}
		}
	}
	double wall = seconds(CLOCK_MONOTONIC) - began;
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"client_cpu\": %.6f}\n",
	       (long long)got, (long long)(got * size), wall, cpu);
	return 0;
}
