! SPDX-License-Identifier: Apache-2.0
!
! Conjugate gradients for the Poisson equation on a square, in strips: halo exchange and two sums over the ranks in every
! iteration, as small solvers are. Prints the residual every tenth iteration in decimal and bit for bit, so that any two
! runs can be compared. Arguments: points along one side, iterations.
program cg
  use mpi
  use iso_fortran_env, only : int64, real64
  implicit none
  integer :: ierr, me, ranks, left, right, n, columns, first, iteration, iterations, requests(4), i, j
  real(real64), allocatable :: x(:, :), r(:, :), p(:, :), ap(:, :)
  real(real64) :: rr, rr_new, pap, alpha
  character(len=16) :: text

  call get_command_argument(1, text)
  read (text, *) n
  call get_command_argument(2, text)
  read (text, *) iterations
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  left = merge(MPI_PROC_NULL, me - 1, me == 0)
  right = merge(MPI_PROC_NULL, me + 1, me == ranks - 1)
  first = me * n / ranks
  columns = (me + 1) * n / ranks - first
  allocate (x(0:n+1, 0:columns+1), r(0:n+1, 0:columns+1), p(0:n+1, 0:columns+1), ap(n, columns))
  x = 0
  r = 0
  do j = 1, columns
    do i = 1, n
      r(i, j) = sin(0.37d0 * i) * cos(0.11d0 * (first + j)) + 1d0 / (1 + i + first + j)
    end do
  end do
  p = r
  rr = dot(r(1:n, 1:columns), r(1:n, 1:columns))
  do iteration = 1, iterations
    call exchange(p)
    do j = 1, columns
      do i = 1, n
        ap(i, j) = 4 * p(i, j) - p(i-1, j) - p(i+1, j) - p(i, j-1) - p(i, j+1)
      end do
    end do
    pap = dot(p(1:n, 1:columns), ap)
    alpha = rr / pap
    x(1:n, 1:columns) = x(1:n, 1:columns) + alpha * p(1:n, 1:columns)
    r(1:n, 1:columns) = r(1:n, 1:columns) - alpha * ap
    rr_new = dot(r(1:n, 1:columns), r(1:n, 1:columns))
    p(1:n, 1:columns) = r(1:n, 1:columns) + (rr_new / rr) * p(1:n, 1:columns)
    rr = rr_new
    if (me == 0 .and. mod(iteration, 10) == 0) print '(a, i6, es24.16, z18.16)', 'residual', iteration, rr, transfer(rr, 0_int64)
  end do
  rr = dot(x(1:n, 1:columns), x(1:n, 1:columns))
  if (me == 0) print '(a, es24.16, z18.16)', 'solution', rr, transfer(rr, 0_int64)
  call MPI_Finalize(ierr)

contains

  real(real64) function dot(a, b)
    real(real64), intent(in) :: a(:, :), b(:, :)
    real(real64) :: own
    own = sum(a * b)
    call MPI_Allreduce(own, dot, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  end function

  subroutine exchange(a)
    real(real64), intent(inout), asynchronous :: a(0:, 0:)
    call MPI_Irecv(a(0, 0), n + 2, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(a(0, columns+1), n + 2, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Isend(a(0, columns), n + 2, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Isend(a(0, 1), n + 2, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
  end subroutine

end program
