! SPDX-License-Identifier: Apache-2.0
!
! Multigrid for the Poisson equation on a periodic cube, as many solvers of pressure are: the cube in slabs, halos of all sizes,
! which become small on the coarse levels, the coarsest level gathered by all ranks, and a norm in every cycle. Prints the
! residual of each cycle in decimal and bit for bit, so that any two runs can be compared, and how far the solution is from the
! one that is known. Arguments: cells along one side (a power of two, at least twice as many as ranks), cycles.
program multigrid
  implicit none
  include 'mpif.h'
  integer, parameter :: real64 = selected_real_kind(15), int64 = selected_int_kind(18)
  real(real64), parameter :: pi = acos(-1d0), damping = 0.8d0
  type level
    integer :: cells, planes  ! along one side; of this rank
    real(real64) :: h2        ! width of a cell, squared
    real(real64), allocatable :: u(:, :, :), f(:, :, :), r(:, :, :)  ! solution, right side, residual or scratch; each with a halo
  end type
  type(level), allocatable, asynchronous :: levels(:)
  integer :: ierr, me, ranks, below, above, n, count, cycle, cycles, l, i, j, k
  real(real64) :: norm, own, distance
  character(len=16) :: text

  call get_command_argument(1, text)
  read (text, *) n
  call get_command_argument(2, text)
  read (text, *) cycles
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  if (popcnt(n) /= 1 .or. popcnt(ranks) /= 1 .or. n < 2 * ranks) then
    if (me == 0) print '(a)', 'multigrid: cells and ranks must be powers of two, with two cells a rank or more'
    call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
  end if
  below = modulo(me - 1, ranks)
  above = modulo(me + 1, ranks)
  count = min(trailz(n) - trailz(ranks) + 1, trailz(n))  ! to one plane a rank, and two cells along a side
  allocate (levels(count))
  do l = 1, count
    levels(l)%cells = n / 2**(l-1)
    levels(l)%planes = levels(l)%cells / ranks
    levels(l)%h2 = (1d0 / levels(l)%cells)**2
    associate (c => levels(l)%cells, p => levels(l)%planes)
      allocate (levels(l)%u(0:c+1, 0:c+1, 0:p+1), levels(l)%f(0:c+1, 0:c+1, 0:p+1), levels(l)%r(0:c+1, 0:c+1, 0:p+1))
    end associate
    levels(l)%u = 0
    levels(l)%f = 0
    levels(l)%r = 0
  end do
  do k = 1, levels(1)%planes
    do j = 1, n
      do i = 1, n
        levels(1)%f(i, j, k) = 12 * pi**2 * known(i, j, me * levels(1)%planes + k)
      end do
    end do
  end do
  do cycle = 1, cycles
    do l = 1, count - 1
      call smooth(levels(l), 2)
      call residual(levels(l))
      call restrict(levels(l), levels(l+1))
      levels(l+1)%u = 0
    end do
    call coarsest(levels(count))
    do l = count - 1, 1, -1
      call prolong(levels(l+1), levels(l))
      call smooth(levels(l), 2)
    end do
    call residual(levels(1))
    own = sum(levels(1)%r(1:n, 1:n, 1:levels(1)%planes)**2)
    call MPI_Allreduce(own, norm, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    norm = sqrt(norm / real(n, real64)**3)
    if (me == 0) print '(a, i6, es24.16, z18.16)', 'residual', cycle, norm, transfer(norm, 0_int64)
  end do
  own = 0
  do k = 1, levels(1)%planes
    do j = 1, n
      do i = 1, n
        own = max(own, abs(levels(1)%u(i, j, k) - known(i, j, me * levels(1)%planes + k)))
      end do
    end do
  end do
  call MPI_Reduce(own, distance, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, ierr)
  if (me == 0) print '(a, es24.16)', 'distance', distance
  call MPI_Finalize(ierr)

contains

  ! The solution in the middle of a cell: three waves, one along each side.
  pure real(real64) function known(i, j, k)
    integer, intent(in) :: i, j, k
    known = sin(2 * pi * (i - 0.5d0) / n) * sin(2 * pi * (j - 0.5d0) / n) * sin(2 * pi * (k - 0.5d0) / n)
  end function

  ! The halo of a, from the neighbours and from the other side of the cube.
  subroutine exchange(a, cells, planes)
    integer, intent(in) :: cells, planes
    real(real64), intent(inout), asynchronous :: a(0:cells+1, 0:cells+1, 0:planes+1)
    integer :: requests(4), size
    a(0, 1:cells, 1:planes) = a(cells, 1:cells, 1:planes)
    a(cells+1, 1:cells, 1:planes) = a(1, 1:cells, 1:planes)
    a(:, 0, 1:planes) = a(:, cells, 1:planes)
    a(:, cells+1, 1:planes) = a(:, 1, 1:planes)
    size = (cells + 2)**2
    call MPI_Irecv(a(0, 0, 0), size, MPI_DOUBLE_PRECISION, below, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(a(0, 0, planes+1), size, MPI_DOUBLE_PRECISION, above, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Isend(a(0, 0, planes), size, MPI_DOUBLE_PRECISION, above, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Isend(a(0, 0, 1), size, MPI_DOUBLE_PRECISION, below, 2, MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
  end subroutine

  ! Damped Jacobi.
  subroutine smooth(on, sweeps)
    type(level), intent(inout), asynchronous :: on
    integer, intent(in) :: sweeps
    integer :: sweep
    do sweep = 1, sweeps
      call exchange(on%u, on%cells, on%planes)
      associate (u => on%u, r => on%r, f => on%f, c => on%cells)
        do k = 1, on%planes
          do j = 1, c
            do i = 1, c
              r(i, j, k) = u(i-1, j, k) + u(i+1, j, k) + u(i, j-1, k) + u(i, j+1, k) + u(i, j, k-1) + u(i, j, k+1)
              r(i, j, k) = u(i, j, k) + damping * ((on%h2 * f(i, j, k) + r(i, j, k)) / 6 - u(i, j, k))
            end do
          end do
        end do
        u(1:c, 1:c, 1:on%planes) = r(1:c, 1:c, 1:on%planes)
      end associate
    end do
  end subroutine

  subroutine residual(on)
    type(level), intent(inout), asynchronous :: on
    call exchange(on%u, on%cells, on%planes)
    associate (u => on%u, r => on%r, f => on%f, c => on%cells)
      do k = 1, on%planes
        do j = 1, c
          do i = 1, c
            r(i, j, k) = u(i-1, j, k) + u(i+1, j, k) + u(i, j-1, k) + u(i, j+1, k) + u(i, j, k-1) + u(i, j, k+1)
            r(i, j, k) = f(i, j, k) + (r(i, j, k) - 6 * u(i, j, k)) / on%h2
          end do
        end do
      end do
    end associate
  end subroutine

  ! The mean residual of eight cells is the right side of the cell that they make.
  subroutine restrict(fine, coarse)
    type(level), intent(in), asynchronous :: fine
    type(level), intent(inout), asynchronous :: coarse
    do k = 1, coarse%planes
      do j = 1, coarse%cells
        do i = 1, coarse%cells
          coarse%f(i, j, k) = sum(fine%r(2*i-1:2*i, 2*j-1:2*j, 2*k-1:2*k)) / 8
        end do
      end do
    end do
  end subroutine

  ! Adds the correction, linear between the middles of the coarse cells.
  subroutine prolong(coarse, fine)
    type(level), intent(inout), asynchronous :: coarse, fine
    integer :: x, y, z, dx, dy, dz
    call exchange(coarse%u, coarse%cells, coarse%planes)
    associate (u => coarse%u)
      do k = 1, fine%planes
        z = (k + 1) / 2
        dz = merge(-1, 1, mod(k, 2) == 1)
        do j = 1, fine%cells
          y = (j + 1) / 2
          dy = merge(-1, 1, mod(j, 2) == 1)
          do i = 1, fine%cells
            x = (i + 1) / 2
            dx = merge(-1, 1, mod(i, 2) == 1)
            fine%u(i, j, k) = fine%u(i, j, k) + (27 * u(x, y, z) + 9 * (u(x+dx, y, z) + u(x, y+dy, z) + u(x, y, z+dz)) + &
              3 * (u(x+dx, y+dy, z) + u(x+dx, y, z+dz) + u(x, y+dy, z+dz)) + u(x+dx, y+dy, z+dz)) / 64
          end do
        end do
      end do
    end associate
  end subroutine

  ! Every rank solves all of the coarsest level, and takes its own planes.
  subroutine coarsest(on)
    type(level), intent(inout), asynchronous :: on
    real(real64) :: own(on%cells, on%cells, on%planes), f(on%cells, on%cells, on%cells), &
                    u(on%cells, on%cells, on%cells), next(on%cells, on%cells, on%cells)
    integer :: sweep, c
    c = on%cells
    own = on%f(1:c, 1:c, 1:on%planes)
    call MPI_Allgather(own, size(own), MPI_DOUBLE_PRECISION, f, size(own), MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
    u = 0
    do sweep = 1, 40
      next = cshift(u, 1, 1) + cshift(u, -1, 1) + cshift(u, 1, 2) + cshift(u, -1, 2) + cshift(u, 1, 3) + cshift(u, -1, 3)
      u = u + damping * ((on%h2 * f + next) / 6 - u)
    end do
    on%u(1:c, 1:c, 1:on%planes) = u(:, :, me*on%planes+1:(me+1)*on%planes)
  end subroutine

end program
