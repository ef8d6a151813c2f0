! SPDX-License-Identifier: Apache-2.0
!
! Particles on a ring that pull at their four neighbours, shared by the ranks; some have replicas on the next rank. One
! bit is flipped where FLIP="rank:step:input|output:particle:bit" says: of the positions after they were sent, of the
! forces after they were computed. Prints what spr.c prints.
!
! Usage: spr_fortran SCENE POLICY STEPS
module chain
  use resil
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: local = 384, total = local + 4
  real(c_double), target, save :: x(total), force(total)
  integer(c_int64_t), target, save :: id(total), offset(local)
  integer(c_int), target, save :: counts(local), neighbour(4 * local), owner(4)
  integer, save :: set, field_x, field_force, kernels = 0
contains
  !> The one kernel: `list` begins for each particle behind `first`, and counts from `base` on.
  subroutine pull(count, first, list, base, places, forces)
    integer(c_int), intent(in) :: count, base
    integer(c_int64_t), intent(in) :: first(count + 1)
    integer(c_int), intent(in) :: list(*)
    real(c_double), intent(in) :: places(*)
    real(c_double), intent(inout) :: forces(*)
    integer(c_int64_t) :: k
    integer :: i
    real(c_double) :: d
    do i = 1, count
      forces(i) = 0
      do k = first(i) + 1, first(i + 1)
        d = places(list(k) + 1 - base) - places(i)
        forces(i) = forces(i) + d / (1 + d * d)
      end do
    end do
  end subroutine

  function replica_kernel(argument, replicas) bind(c) result(failed)
    type(c_ptr), value :: argument
    type(resil_spr_replicas), intent(in) :: replicas
    integer(c_int) :: failed
    integer(c_int), pointer :: first(:), list(:)
    type(c_ptr), pointer :: fields(:)
    real(c_double), pointer :: places(:), forces(:)
    failed = 0
    if (c_associated(argument)) failed = 1
    call c_f_pointer(replicas%offset, first, [replicas%count + 1])
    call c_f_pointer(replicas%neighbour, list, [first(replicas%count + 1)])
    call c_f_pointer(replicas%field, fields, [replicas%fields])
    call c_f_pointer(fields(field_x + 1), places, [replicas%particles])
    call c_f_pointer(fields(field_force + 1), forces, [replicas%particles])
    call pull(replicas%count, int(first, c_int64_t), list, 0_c_int, places, forces)
    kernels = kernels + 1
  end function

  subroutine flip(rank, step, place, numbers)
    integer, intent(in) :: rank, step
    character(len=*), intent(in) :: place
    real(c_double), intent(inout) :: numbers(:)
    character(len=64) :: text
    integer :: length, of_rank, of_step, particle, bit, i
    call get_environment_variable("FLIP", text, length)
    if (length == 0) return
    i = index(text, place)
    if (i == 0) return
    text(i:i + len(place) - 1) = " "
    do i = 1, length
      if (text(i:i) == ":") text(i:i) = " "
    end do
    read(text, *) of_rank, of_step, particle, bit
    if (of_rank == rank .and. of_step == step) &
      numbers(particle + 1) = transfer(ieor(transfer(numbers(particle + 1), 1_c_int64_t), ishft(1_c_int64_t, bit)), 1.0_c_double)
  end subroutine
end module

program spr
  use mpi
  use chain
  implicit none
  integer :: rank, ranks, error, i, k, step, steps, policy, replicas, left, right, status(MPI_STATUS_SIZE)
  integer(c_int64_t) :: found
  integer(c_int64_t) :: everything(local + 1)
  character(len=32) :: word
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(2, word)
  read(word, *) policy
  call get_command_argument(3, word)
  read(word, *) steps
  left = modulo(rank - 1, ranks)
  right = modulo(rank + 1, ranks)
  do i = 1, local
    id(i) = rank * local + i - 1
    x(i) = i + 0.25d0 * sin(0.7d0 * id(i))
    offset(i) = 4 * (i - 1)
    counts(i) = 4
    do k = 1, 4  ! -2, -1, 1, 2: copies of the left rank's last two, then of the right one's first two, behind the local ones
      neighbour(4 * (i - 1) + k) = i + k - 3
      if (k > 2) neighbour(4 * (i - 1) + k) = i + k - 2
      if (neighbour(4 * (i - 1) + k) < 1) neighbour(4 * (i - 1) + k) = local + 2 + neighbour(4 * (i - 1) + k)
      if (i + k > local + 2 .and. k > 2 .and. neighbour(4 * (i - 1) + k) > local) &
        neighbour(4 * (i - 1) + k) = neighbour(4 * (i - 1) + k) + 2
    end do
  end do
  everything = [offset, 4_c_int64_t * local]
  owner = [left, left, right, right]
  id(local + 1:) = [modulo(rank * local - 2, ranks * local), modulo(rank * local - 1, ranks * local), &
    modulo((rank + 1) * local, ranks * local), modulo((rank + 1) * local + 1, ranks * local)]

  set = resil_spr_create("chain")
  field_x = resil_spr_field(set, "x", c_loc(x), 8, 8, resil_spr_double)
  field_force = resil_spr_field(set, "force", c_loc(force), 8, 8, resil_spr_double)
  i = resil_spr_field(set, "id  ", c_loc(id), 8, 8, resil_spr_id)
  replicas = resil_spr_select(set, local, total, offset, counts, neighbour, owner)
  found = 0
  do step = 0, steps - 1
    call MPI_Sendrecv(x(local - 1), 2, MPI_DOUBLE_PRECISION, right, 1, x(local + 1), 2, MPI_DOUBLE_PRECISION, left, 1, &
      MPI_COMM_WORLD, status, error)
    call MPI_Sendrecv(x(1), 2, MPI_DOUBLE_PRECISION, left, 2, x(local + 3), 2, MPI_DOUBLE_PRECISION, right, 2, &
      MPI_COMM_WORLD, status, error)
    call resil_spr_begin(set, step, local, total, resil_spr_bit(field_x))
    call flip(rank, step, ":input:", x)
    call pull(local, everything, neighbour, 1_c_int, x, force)
    call resil_spr_computed(set, resil_spr_bit(field_force), 1, local)
    call flip(rank, step, ":output:", force)
    found = found + resil_spr_end(set, resil_spr_bit(field_force), replica_kernel, c_null_ptr, policy)
    x(:local) = x(:local) + 0.01d0 * force(:local)
  end do
  if (set >= 0) call keep_and_look()
  print '(a, i0, a, z16.16)', "rank ", rank, ": sum ", sum(x(:local))
  write (0, '(a, i0, a, i0, a, i0, a, i0, a, i0, a)') "rank ", rank, ": set ", min(set, 0), " replicas ", replicas, &
    " kernels ", kernels, " found ", found, " rollbacks 0"
  call resil_spr_destroy(set)
  call MPI_Finalize(error)

contains

  !> Own particles as they are; those of the rank before have its ids.
  subroutine keep_and_look()
    type(resil_spr_replicas) :: kept
    integer(c_int64_t), pointer :: ids(:)
    type(c_ptr), pointer :: fields(:)
    real(c_double), pointer :: places(:)
    if (resil_spr_kept(set, huge(1), resil_spr_own, kept) /= -1) error stop "kept before keep"
    if (resil_spr_keep(set, steps, local, resil_spr_bit(field_x)) /= 0) error stop "not kept"
    if (resil_spr_kept(set, steps - 1, resil_spr_own, kept) /= -1) error stop "an older one"
    if (resil_spr_kept(set, huge(1), resil_spr_own, kept) /= steps .or. kept%rank /= rank) error stop "own"
    call c_f_pointer(kept%field, fields, [kept%fields])
    call c_f_pointer(fields(field_x + 1), places, [kept%count])
    if (any(places /= x(:local))) error stop "other places"
    if (resil_spr_kept(set, steps, resil_spr_before, kept) /= steps .or. kept%rank /= left) error stop "before"
    call c_f_pointer(kept%id, ids, [kept%count])
    if (kept%count /= local .or. any(ids /= [(int(left * local + i - 1, c_int64_t), i = 1, local)])) error stop "other ids"
  end subroutine
end program
