! SPDX-License-Identifier: Apache-2.0
!
! Reductions from mpi_f08: pairs of MPI_2DOUBLE_PRECISION and a user's operator that does not commute.
!
! reductions_f08 native|order|exact
module operators
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
contains
  subroutine affine(low, high, length, type) bind(c)
    type(c_ptr), value :: low, high
    integer :: length
    type(MPI_Datatype) :: type
    double precision, pointer :: a(:, :), b(:, :)
    double precision :: shift
    integer :: i
    call c_f_pointer(low, a, [2, length / 2])
    call c_f_pointer(high, b, [2, length / 2])
    do i = 1, length / 2
      shift = mod(b(1, i) * a(2, i) + b(2, i), 1009d0)
      b(1, i) = mod(b(1, i) * a(1, i), 1009d0)
      b(2, i) = shift
    end do
  end subroutine
end module

program reductions_f08
  use mpi_f08
  use operators
  implicit none
  integer, parameter :: n = 300
  integer :: rank, ranks, i, r
  character(len=16) :: mode
  type(MPI_Op) :: op
  double precision :: pair(2, n), best(2, n), map(2, 1), composed(2, 1), a, b

  call MPI_Init()
  call get_command_argument(1, mode)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  do i = 1, n
    pair(1, i) = dble(mod(i * (rank + 3), 7))
    pair(2, i) = dble(rank)
  end do
  call MPI_Allreduce(pair, best, n, MPI_2DOUBLE_PRECISION, MPI_MINLOC, MPI_COMM_WORLD)
  do i = 1, n
    a = 100
    b = -1
    do r = 0, ranks - 1
      if (dble(mod(i * (r + 3), 7)) < a) then
        a = dble(mod(i * (r + 3), 7))
        b = dble(r)
      end if
    end do
    if (best(1, i) /= a .or. best(2, i) /= b) call failed('minloc')
  end do

  call MPI_Op_create(affine, .false., op)
  map(:, 1) = [dble(rank + 2), dble(3 * rank + 1)]
  call MPI_Allreduce(map, composed, 2, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD)
  a = 1
  b = 0
  do r = 0, ranks - 1
    b = mod(dble(r + 2) * b + dble(3 * r + 1), 1009d0)
    a = mod(dble(r + 2) * a, 1009d0)
  end do
  if (composed(1, 1) /= a .or. composed(2, 1) /= b) call failed('user operator')
  call MPI_Op_free(op)
  b = dble(rank) / 4d0
  call MPI_Allreduce(b, a, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (a /= dble(ranks * (ranks - 1)) / 8d0) call failed('sum')
  if (rank == 0) print '(a)', 'reductions_f08 '//trim(mode)
  call MPI_Finalize()
contains
  subroutine failed(what)
    character(len=*) :: what
    print '(a,i0,a,a)', 'rank ', rank, ' failed: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
