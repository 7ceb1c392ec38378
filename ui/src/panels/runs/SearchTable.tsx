import { Button, Table } from '@mantine/core'
import { IconAlertTriangle } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { SearchRecord } from '~/api/types'
import { short } from '~/parts/numbers'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import classes from './runs.module.css'
import { runsTexts } from './texts'

/** The hyper-parameter searches on disk, newest first. */
export function SearchTable({ searches }: { searches: SearchRecord[] }) {
  const { t } = useTranslation(runsTexts)
  const openSearch = useView((view) => view.openSearch)
  const newestFirst = [...searches].sort((a, b) => (b.modified ?? 0) - (a.modified ?? 0))
  return (
    <Table highlightOnHover className={classes['table'] ?? ''} layout="fixed">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t('name')}</Table.Th>
          <Table.Th w={60}>{t('trials')}</Table.Th>
          <Table.Th w={110}>{t('pruned')}</Table.Th>
          <Table.Th w={170}>{t('best')}</Table.Th>
          <Table.Th w={120}>{t('modified')}</Table.Th>
          <Table.Th w={80} aria-label={t('show')} />
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {newestFirst.map((search) => {
          const best = search.best.map(
            (value, index) => `${search.targets[index]?.name ?? ''} ${short(value)}`,
          )
          return (
            <Table.Tr key={search.name} data-testid="search-row" data-name={search.name}>
              <Table.Td className={classes['name'] ?? ''}>
                <div className={classes['line']} title={search.name}>
                  {search.name}
                </div>
                {search.problem && (
                  <div
                    className={`${classes['problem'] ?? ''} ${classes['short'] ?? ''}`}
                    title={search.problem}
                  >
                    <IconAlertTriangle size={12} aria-hidden /> {search.problem}
                  </div>
                )}
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{search.trials}</Table.Td>
              <Table.Td className={classes['number'] ?? ''}>
                {search.pruned}, {search.failed}
              </Table.Td>
              <Table.Td className={classes['line'] ?? ''} title={best.join(', ')}>
                {best.join(', ') || '–'}
              </Table.Td>
              <Table.Td title={typeof search.modified === 'number' ? moment(search.modified) : ''}>
                {typeof search.modified === 'number' ? ago(search.modified) : '–'}
              </Table.Td>
              <Table.Td>
                <div className={classes['buttons']}>
                  <Button
                    size="compact-xs"
                    variant="default"
                    disabled={Boolean(search.problem)}
                    onClick={() => openSearch(search.name)}
                  >
                    {t('show')}
                  </Button>
                </div>
              </Table.Td>
            </Table.Tr>
          )
        })}
      </Table.Tbody>
    </Table>
  )
}
