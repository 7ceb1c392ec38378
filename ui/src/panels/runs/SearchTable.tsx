import { Button, Table } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import type { SearchRecord } from '~/api/types'
import { short } from '~/parts/numbers'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import classes from './runs.module.css'
import { runsTexts } from './texts'

/** Searches for hyper-parameters that were found on disk; the newest first. */
export function SearchTable({ searches }: { searches: SearchRecord[] }) {
  const { t } = useTranslation(runsTexts)
  const openSearch = useView((view) => view.openSearch)
  const found = [...searches].sort((a, b) => (b.modified ?? 0) - (a.modified ?? 0))
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
        {found.map((one) => {
          const best = one.best.map((value, index) => `${one.targets[index]?.name ?? ''} ${short(value)}`)
          return (
            <Table.Tr key={one.name} data-testid="search-row" data-name={one.name}>
              <Table.Td className={classes['name'] ?? ''}>
                <div className={classes['line']} title={one.name}>
                  {one.name}
                </div>
                {one.problem && (
                  <div
                    className={`${classes['problem'] ?? ''} ${classes['short'] ?? ''}`}
                    title={one.problem}
                  >
                    <IconAlertTriangle size={12} aria-hidden /> {one.problem}
                  </div>
                )}
              </Table.Td>
              <Table.Td className={classes['number'] ?? ''}>{one.trials}</Table.Td>
              <Table.Td className={classes['number'] ?? ''}>
                {one.pruned}, {one.failed}
              </Table.Td>
              <Table.Td className={classes['line'] ?? ''} title={best.join(', ')}>
                {best.join(', ') || '–'}
              </Table.Td>
              <Table.Td title={typeof one.modified === 'number' ? moment(one.modified) : ''}>
                {typeof one.modified === 'number' ? ago(one.modified) : '–'}
              </Table.Td>
              <Table.Td>
                <div className={classes['buttons']}>
                  <Button
                    size="compact-xs"
                    variant="default"
                    disabled={Boolean(one.problem)}
                    onClick={() => openSearch(one.name)}
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
