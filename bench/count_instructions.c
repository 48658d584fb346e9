/* count_instructions.c: a plugin of QEMU that prints how many instructions a program has executed.
 *
 * QEMU's own header is in no package, so what is used of it is declared here (its plugin API, version 1). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin_id;
typedef struct block block;

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id, block *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(block *of, int operation, void *at,
                                                     uint64_t by);
extern size_t qemu_plugin_tb_n_insns(const block *of);
extern void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id, void *),
                                           void *with);

int qemu_plugin_version = 1;
int qemu_plugin_install(plugin_id id, const void *info, int count, char **words);

static uint64_t executed;

static void count_block(plugin_id id, block *of) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(of, 0, &executed, qemu_plugin_tb_n_insns(of));
}

static void print(plugin_id id, void *with) {
    (void)id, (void)with;
    fprintf(stderr, "instructions: %llu\n", (unsigned long long)executed);
}

int qemu_plugin_install(plugin_id id, const void *info, int count, char **words) {
    (void)info, (void)count, (void)words;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_atexit_cb(id, print, NULL);
    return 0;
}
