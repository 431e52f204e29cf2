# Calls main(0, 0) on the stack that tvm-npu run-elf gives, and ends with its result as exit code.
# void exit(int code); long write(int file, const void *bytes, unsigned long count);
    .section .text.start, "ax"
    .globl _start
_start:
    li a0, 0
    li a1, 0
    call main
    .globl exit
exit:
    li a7, 93
    ecall
    .globl write
write:
    li a7, 64
    ecall
    ret
