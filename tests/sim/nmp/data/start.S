# Sets the stack up, calls main, ends with its result as the exit code.
    .section .text.start
    .globl _start
_start:
    la sp, stack_top
    call main
    li a7, 93
    ecall

    .section .bss
    .balign 16
    .space 4096
stack_top:
