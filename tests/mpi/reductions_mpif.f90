! SPDX-License-Identifier: Apache-2.0
!
! Reductions from mpif.h: sums, pairs of MPI_2DOUBLE_PRECISION, a user's operator that does not commute, in place.
!
! reductions_mpif native|order|exact
subroutine affine(low, high, length, type)
  implicit none
  integer :: length, type, i
  double precision :: low(2, length), high(2, length), shift
  ! x -> a x + b, one after the other; small integers, so that only the order of the operands matters.
  do i = 1, length
    shift = mod(high(1, i) * low(2, i) + high(2, i), 1009d0)
    high(1, i) = mod(high(1, i) * low(1, i), 1009d0)
    high(2, i) = shift
  end do
end subroutine

program reductions_mpif
  implicit none
  include 'mpif.h'
  external affine
  integer, parameter :: n = 700
  integer :: error, rank, ranks, i, r, op, maps, request
  character(len=16) :: mode
  double precision :: x(n), total(n), wanted, pair(2, n), best(2, n), map(2, n), composed(2, n), a, b
  real :: small, sums

  call MPI_Init(error)
  call get_command_argument(1, mode)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)

  do i = 1, n
    x(i) = dble(i + rank) / 8d0
    pair(1, i) = dble(mod(i * (rank + 3), 7))
    pair(2, i) = dble(rank)
    map(1, i) = dble(mod(i + rank, 31) + 1)
    map(2, i) = dble(mod(i * rank, 17))
  end do
  call MPI_Allreduce(x, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  do i = 1, n
    wanted = 0
    do r = 0, ranks - 1
      wanted = wanted + dble(i + r) / 8d0
    end do
    if (total(i) /= wanted) call failed('sum')
  end do
  call MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request, error)
  call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  if (any(x /= total)) call failed('sum in place')

  small = real(rank + 1)
  call MPI_Reduce(small, sums, 1, MPI_REAL, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0 .and. sums /= real(ranks * (ranks + 1) / 2)) call failed('sum of reals')

  call MPI_Allreduce(pair, best, n, MPI_2DOUBLE_PRECISION, MPI_MAXLOC, MPI_COMM_WORLD, error)
  do i = 1, n
    a = -1
    b = -1
    do r = 0, ranks - 1
      if (dble(mod(i * (r + 3), 7)) > a) then
        a = dble(mod(i * (r + 3), 7))
        b = dble(r)
      end if
    end do
    if (best(1, i) /= a .or. best(2, i) /= b) call failed('maxloc')
  end do

  call MPI_Op_create(affine, .false., op, error)
  call MPI_Type_contiguous(2, MPI_DOUBLE_PRECISION, maps, error)
  call MPI_Type_commit(maps, error)
  call MPI_Allreduce(map, composed, n, maps, op, MPI_COMM_WORLD, error)
  do i = 1, n
    a = 1
    b = 0
    do r = 0, ranks - 1
      b = mod(dble(mod(i + r, 31) + 1) * b + dble(mod(i * r, 17)), 1009d0)
      a = mod(dble(mod(i + r, 31) + 1) * a, 1009d0)
    end do
    if (composed(1, i) /= a .or. composed(2, i) /= b) call failed('user operator')
  end do
  ! Freed while it is needed.
  call MPI_Iallreduce(MPI_IN_PLACE, map, n, maps, op, MPI_COMM_WORLD, request, error)
  call MPI_Op_free(op, error)
  call MPI_Type_free(maps, error)
  call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  if (any(map /= composed)) call failed('user operator, freed')
  if (op /= MPI_OP_NULL) call failed('freed operator is not null')

  if (rank == 0) print '(a)', 'reductions_mpif '//trim(mode)
  call MPI_Finalize(error)
contains
  subroutine failed(what)
    character(len=*) :: what
    print '(a,i0,a,a)', 'rank ', rank, ' failed: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine
end program
