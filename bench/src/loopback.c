/* For servers without a "listen address" setting: loaded before them, it turns a bind to every address into a bind
 * to 127.0.0.1, so that a bench never listens beyond this machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    int (*real_bind)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    if (address && address->sa_family == AF_INET) {
        struct sockaddr_in narrowed = *(const struct sockaddr_in *)address;
        if (narrowed.sin_addr.s_addr == htonl(INADDR_ANY)) {
            narrowed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        return real_bind(socket, (const struct sockaddr *)&narrowed, sizeof narrowed);
    }
    return real_bind(socket, address, length);
}
