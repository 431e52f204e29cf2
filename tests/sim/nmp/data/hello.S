# Says hello, and takes its exit code out of what is in .data and in .bss.
    .text
    .globl main
main:
    addi sp, sp, -16
    sw ra, 12(sp)
    li a0, 1
    la a1, text
    li a2, 6
    call write
    la t0, number
    lw t1, 0(t0)
    add t1, t1, a0
    la t0, room
    sw t1, 0(t0)
    lw a0, 0(t0)
    lw ra, 12(sp)
    addi sp, sp, 16
    ret

    .section .rodata
text:
    .ascii "hello\n"
    .data
    .balign 4
number:
    .word 36
    .bss
    .balign 4
room:
    .space 4
