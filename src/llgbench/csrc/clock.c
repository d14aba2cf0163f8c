/* Two clocks. CLOCK_MONOTONIC costs about 35 ns a reading on a virtual machine, which three
 * readings a step would make the costliest part of an empty step; the processor's time stamp
 * counter costs about 13. It is used where the kernel itself keeps time by it, which is the
 * kernel's word that it ticks evenly and alike on all cores; elsewhere CLOCK_MONOTONIC is read, and
 * where LLGBENCH_CLOCK=monotonic asks for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

bool lb_clock_is_tsc = false;

static uint64_t anchor_ns, anchor_ticks;

/* Long enough that the error of the two anchors (some 50 ns) is below one part in 100,000. */
enum { CALIBRATION_NS = 10000000 };

__attribute__((constructor)) static void choose_clock(void) {
#if defined(__x86_64__)
    char name[16] = "";
    const char *wanted = getenv("LLGBENCH_CLOCK");
    FILE *file =
        fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (file != NULL) {
        if (fscanf(file, "%15s", name) != 1) name[0] = '\0';
        fclose(file);
    }
    lb_clock_is_tsc =
        strcmp(name, "tsc") == 0 && (wanted == NULL || strcmp(wanted, "monotonic") != 0);
#endif
    anchor_ns = now_ns();
    anchor_ticks = now_ticks();
}

/* The ratio over all the time since the library was loaded: the longer, the more exact. */
double lb_ns_per_tick(void) {
    if (!lb_clock_is_tsc) return 1.0;
    uint64_t ns = now_ns(), ticks = now_ticks();
    while (ns - anchor_ns < CALIBRATION_NS) ns = now_ns(), ticks = now_ticks();
    return (double)(ns - anchor_ns) / (double)(ticks - anchor_ticks);
}

uint64_t lb_now_ns(void) { return now_ns(); }
