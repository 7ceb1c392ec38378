import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys, path, useSession, useShown } from '~/api/queries'
import type { StatisticsPage, StatisticsRow } from '~/api/types'
import { useView } from '~/state/store'
import type { ColumnId } from './columns'
import { pagesOf } from './virtualRows'

export interface TableQuery {
  query: string
  sort: ColumnId
  descending: boolean
}

/** Rows per request. */
export const PAGE = 200

function useAsk() {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const shown = useShown()
  return (query: TableQuery, page: number) => ({
    queryKey: keys.step(run, 'statistics', rank, query, page, shown),
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      get<StatisticsPage>(
        path(run, '/statistics'),
        { rank, ...query, offset: page * PAGE, limit: PAGE },
        signal,
      ),
    enabled: session !== undefined && session.state !== 'connecting',
  })
}

/** The first page, with the total number of rows. */
export function useFirstPage(query: TableQuery) {
  return useQuery({ ...useAsk()(query, 0), placeholderData: keepPreviousData })
}

/** The rows in a range of positions, as far as they have been loaded. */
export function useRows(query: TableQuery, first: number, last: number): Map<number, StatisticsRow> {
  const ask = useAsk()
  return useQueries({
    queries: pagesOf(first, last, PAGE).map((page) => ask(query, page)),
    combine: (pages) =>
      new Map(
        pages.flatMap(({ data }) =>
          data ? data.rows.map((row, index) => [data.offset + index, row] as const) : [],
        ),
      ),
  })
}
