// truth.c: a streaming server whose times are known. It keeps an absolute schedule and tells what it really did.
//
//     cc -O2 -o truth truth.c && ./truth PORT TTFT_US GAP_US TOKENS_PER_CHUNK spread|sync|fast
//
// POST /v1/completions and /v1/chat/completions stream max_tokens tokens: the first chunk TTFT after the request was
// read, then one every GAP. spread: each answer by its own clock; sync: all at the ticks of one, as an engine's steps;
// fast: without waiting. GET /stats?reset tells what was done since it was asked last, in milliseconds. Linux only.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MODELS "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"root\":\"mock\",\"max_model_len\":32768}]}"

enum { MOST = 4096, REQUEST_BYTES = 1 << 16, EVENTS = 256 };
typedef long long ns;

struct connection {
    int fd, have, streaming, chat, usage, every, wanted, sent, is_full;
    ns received, due, last;
    char in[REQUEST_BYTES + 1];
    char *out;
    size_t queued, room;
};
struct times {
    double *ms;
    size_t n, room;
};

static struct connection *open_ones[MOST];
static int poll_fd, highest, per_chunk, under_way, peak;
static int is_sync, is_fast;
static ns ttft, gap, origin, first_read, last_done;
static double first_read_wall;
static long requests, done, tokens, chunks;
static struct times ttfts, gaps;

static ns now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void note(struct times *times, ns span) {
    if (times->n == times->room) {
        times->room = 2 * times->room + 1024;
        times->ms = realloc(times->ms, times->room * sizeof(double));
    }
    times->ms[times->n++] = span / 1e6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct times *times, double p) {
    if (!times->n) return 0;
    double at = p * (times->n - 1);
    size_t below = (size_t)at, above = below + 1 < times->n ? below + 1 : below;
    return times->ms[below] + (times->ms[above] - times->ms[below]) * (at - below);
}

static double mean(const struct times *times) {
    double sum = 0;
    for (size_t i = 0; i < times->n; i++) sum += times->ms[i];
    return times->n ? sum / times->n : 0;
}

static void close_one(struct connection *c) {
    under_way -= c->streaming;
    open_ones[c->fd] = NULL;
    close(c->fd);
    free(c->out);
    free(c);
}

static void queue(struct connection *c, const char *bytes, size_t n) {
    if (c->queued + n > c->room) c->out = realloc(c->out, c->room = 2 * (c->queued + n) + 4096);
    memcpy(c->out + c->queued, bytes, n);
    c->queued += n;
}

static void queue_chunk(struct connection *c, const char *event) {
    char head[32];
    queue(c, head, sprintf(head, "%zx\r\n", strlen(event)));
    queue(c, event, strlen(event));
    queue(c, "\r\n", 2);
}

// Sends what is queued; what the kernel has no room for waits until it has. Returns 0 when the client is gone.
static int flush(struct connection *c) {
    ssize_t sent = c->queued ? send(c->fd, c->out, c->queued, MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN) return 0;
    if (sent > 0) memmove(c->out, c->out + sent, c->queued -= sent);
    if ((c->queued > 0) != c->is_full) {
        c->is_full = c->queued > 0;
        struct epoll_event wanted = {.events = EPOLLIN | (c->is_full ? EPOLLOUT : 0), .data.fd = c->fd};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &wanted);
    }
    return 1;
}

static void answer(struct connection *c, int status, const char *body) {
    char head[160];
    const char *form = "HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n";
    queue(c, head, sprintf(head, form, status, strlen(body)));
    queue(c, body, strlen(body));
}

static void answer_stats(struct connection *c, int reset) {
    char body[1024];
    qsort(ttfts.ms, ttfts.n, sizeof(double), ascending);
    qsort(gaps.ms, gaps.n, sizeof(double), ascending);
    sprintf(body,
            "{\"req\":%ld,\"done\":%ld,\"tok\":%ld,\"chunks\":%ld,\"peak\":%d,\"ttft_p50\":%.4f,\"ttft_p99\":%.4f,"
            "\"itl_mean\":%.4f,\"itl_p50\":%.4f,\"itl_p99\":%.4f,\"span_s\":%.4f,\"first_req_real\":%.6f}\n",
            requests, done, tokens, chunks, peak, percentile(&ttfts, .5), percentile(&ttfts, .99), mean(&gaps),
            percentile(&gaps, .5), percentile(&gaps, .99), (last_done - first_read) / 1e9, first_read_wall);
    answer(c, 200, body);
    if (!reset) return;
    ttfts.n = gaps.n = 0;
    requests = done = tokens = chunks = peak = 0;
    first_read = last_done = 0;
    first_read_wall = 0;
}

// Reads a member of the request's JSON; prompts of these benchmarks contain no such names.
static const char *member(const char *body, const char *name) {
    const char *at = strstr(body, name);
    return at ? at + strlen(name) + strspn(at + strlen(name), "\": ") : "";
}

static void begin(struct connection *c, const char *head, const char *body) {
    c->received = now();
    if (!first_read) {
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        first_read = c->received;
        first_read_wall = wall.tv_sec + wall.tv_nsec / 1e9;
    }
    requests++;
    c->chat = strstr(head, "/chat/completions") != NULL;
    c->wanted = atoi(member(body, "\"max_tokens\""));
    if (c->wanted < 1) c->wanted = atoi(member(body, "\"max_completion_tokens\""));
    if (c->wanted < 1) c->wanted = 16;
    c->usage = !strncmp(member(body, "\"include_usage\""), "true", 4);
    c->every = !strncmp(member(body, "\"continuous_usage_stats\""), "true", 4);
    c->sent = 0;
    if (strncmp(member(body, "\"stream\""), "true", 4)) {
        answer(c, 200, "{\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":\"length\"}],"
                       "\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":1,\"total_tokens\":129}}");
        return;
    }
    const char *start =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    queue(c, start, strlen(start));
    c->streaming = 1;
    if (++under_way > peak) peak = under_way;
    c->due = is_fast ? c->received : c->received + ttft;
    if (is_sync) c->due = origin + (c->due - origin + gap - 1) / gap * gap;
}

// Handles every request that is complete; the next one of a connection waits for the answer's end.
static void handle(struct connection *c) {
    char *end;
    while (!c->streaming && (end = strstr(c->in, "\r\n\r\n"))) {
        *end = 0;
        const char *length = strcasestr(c->in, "\ncontent-length:");
        char *body = end + 4;
        int size = length ? atoi(length + 16) : 0;
        if (c->in + c->have - body < size) {
            *end = '\r';
            return;
        }
        char after = body[size];
        body[size] = 0;
        if (!strncmp(c->in, "POST", 4) && strstr(c->in, "completions")) begin(c, c->in, body);
        else if (strstr(c->in, "/stats")) answer_stats(c, strstr(c->in, "reset") != NULL);
        else if (strstr(c->in, "/v1/models")) answer(c, 200, MODELS);
        else if (strstr(c->in, "/health")) answer(c, 200, "{}");
        else answer(c, 404, "{\"detail\":\"Not Found\"}");
        body[size] = after;
        c->have -= body + size - c->in;
        memmove(c->in, body + size, c->have);
        c->in[c->have] = 0;
    }
}

static void queue_event(struct connection *c, const char *choices, const char *usage) {
    char event[1024];
    sprintf(event, "data: {\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":\"%s\",\"created\":1700000000,"
            "\"model\":\"mock\",\"choices\":[%s]%s}\n\n",
            c->chat ? "chat.completion.chunk" : "text_completion", choices, usage);
    queue_chunk(c, event);
}

static void emit(struct connection *c) {
    char choice[512], text[256] = "", usage[128];
    int is_first = !c->sent, now_sent = is_first ? 1 : per_chunk;
    if (c->sent + now_sent > c->wanted) now_sent = c->wanted - c->sent;
    for (int i = 0; i < now_sent && i < 32; i++) strcat(text, " self");
    int ends = (c->sent += now_sent) == c->wanted;
    sprintf(usage, ",\"usage\":{\"prompt_tokens\":128,\"total_tokens\":%d,\"completion_tokens\":%d}", 128 + c->sent, c->sent);
    if (c->chat && is_first)
        queue_event(c, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}", "");
    sprintf(choice, c->chat ? "{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":%s}"
                            : "{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s,\"stop_reason\":null}",
            text, ends ? "\"length\"" : "null");
    queue_event(c, choice, c->every ? usage : "");
    if (ends && c->usage) queue_event(c, "", usage);
    if (ends) {
        queue_chunk(c, "data: [DONE]\n\n");
        queue(c, "0\r\n\r\n", 5);
    }
    if (!flush(c)) return close_one(c);
    ns at = now();
    note(is_first ? &ttfts : &gaps, at - (is_first ? c->received : c->last));
    c->last = at;
    c->due += is_fast ? 0 : gap;
    chunks++;
    tokens += now_sent;
    if (ends) {
        c->streaming = 0;
        under_way--;
        done++;
        last_done = at;
        handle(c);
    }
}

static void serve(struct connection *c, unsigned events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t got = recv(c->fd, c->in + c->have, REQUEST_BYTES - c->have, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) return close_one(c);
        if (got > 0) c->in[c->have += got] = 0;
        handle(c);
    }
    if (!flush(c)) close_one(c);
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MOST) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = open_ones[fd] = calloc(1, sizeof *c);
        c->fd = fd;
        if (fd > highest) highest = fd;
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd});
    }
}

// Sends all that is due and returns when the next chunk is, 0 when none is to come.
static ns emit_due(void) {
    ns next = 0, at = now();
    for (int fd = 0; fd <= highest; fd++) {
        struct connection *c = open_ones[fd];
        if (c && c->streaming && !c->queued && c->due <= at) emit(c), c = open_ones[fd];
        if (c && c->streaming && !c->queued && (!next || c->due < next)) next = c->due;
    }
    return next;
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: truth PORT TTFT_US GAP_US TOKENS_PER_CHUNK spread|sync|fast\n"), 64;
    ttft = atoll(argv[2]) * 1000, gap = atoll(argv[3]) * 1000, per_chunk = atoi(argv[4]);
    is_sync = !strcmp(argv[5], "sync"), is_fast = !strcmp(argv[5], "fast"), origin = now();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, MOST)) return perror("truth"), 1;
    poll_fd = epoll_create1(0);
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.fd = listener});
    for (;;) {
        ns next = emit_due(), left = next ? next - now() : 0;
        struct timespec wait = {.tv_sec = left > 0 ? left / 1000000000 : 0, .tv_nsec = left > 0 ? left % 1000000000 : 0};
        struct epoll_event events[EVENTS];
        int n = epoll_pwait2(poll_fd, events, EVENTS, next ? &wait : NULL, NULL);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener) accept_all(listener);
            else if (open_ones[events[i].data.fd]) serve(open_ones[events[i].data.fd], events[i].events);
        }
    }
}
