! SPDX-License-Identifier: Apache-2.0
!
! A five-point stencil with halo exchange and a norm in every step, as small solvers are: time of the loop.
! Argument: number of steps.
program stencil
  use mpi
  implicit none
  integer, parameter :: n = 384
  integer :: ierr, me, ranks, left, right, step, steps, i, j, requests(4)
  double precision, allocatable :: grid(:, :), next(:, :)
  double precision :: change, all, start, seconds
  character(len=16) :: text

  call get_command_argument(1, text)
  read (text, *) steps
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  left = merge(MPI_PROC_NULL, me - 1, me == 0)
  right = merge(MPI_PROC_NULL, me + 1, me == ranks - 1)
  allocate (grid(0:n+1, 0:n+1), next(0:n+1, 0:n+1))
  grid = 1 + me  ! never so small that the arithmetic becomes slow
  next = 1 + me
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  start = MPI_Wtime()
  do step = 1, steps
    call MPI_Irecv(grid(0, 0), n + 2, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(grid(0, n+1), n + 2, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Isend(grid(0, n), n + 2, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Isend(grid(0, 1), n + 2, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    change = 0
    do j = 1, n
      do i = 1, n
        next(i, j) = 0.25d0 * (grid(i-1, j) + grid(i+1, j) + grid(i, j-1) + grid(i, j+1))
        change = max(change, abs(next(i, j) - grid(i, j)))
      end do
    end do
    grid(1:n, 1:n) = next(1:n, 1:n)
    call MPI_Allreduce(change, all, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  end do
  seconds = MPI_Wtime() - start
  if (me == 0) print '(a, f12.6, a)', 'stencil_loop ', seconds * 1d3, ' ms'
  call MPI_Finalize(ierr)
end program
