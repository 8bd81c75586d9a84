/* For servers without a "listen address" setting: loaded before them, it turns a bind to every address into a bind
 * to LOOPBACK_ADDRESS, or to 127.0.0.1 when that is not set or no loopback address, so that a bench or a test never
 * listens beyond this machine. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

static in_addr_t loopback(void) {
    const char *named = getenv("LOOPBACK_ADDRESS");
    struct in_addr address;
    if (named && inet_pton(AF_INET, named, &address) == 1 && ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET) {
        return address.s_addr;
    }
    return htonl(INADDR_LOOPBACK);
}

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    int (*real_bind)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    if (address && address->sa_family == AF_INET) {
        struct sockaddr_in narrowed = *(const struct sockaddr_in *)address;
        if (narrowed.sin_addr.s_addr == htonl(INADDR_ANY)) {
            narrowed.sin_addr.s_addr = loopback();
        }
        return real_bind(socket, (const struct sockaddr *)&narrowed, sizeof narrowed);
    }
    return real_bind(socket, address, length);
}
