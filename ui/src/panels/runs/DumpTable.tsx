import { Button, Table, TextInput } from '@mantine/core'
import { IconAlertTriangle, IconSearch } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { DumpRecord } from '~/api/types'
import { Notice } from '~/parts/Notice'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import { Compare, compareRun } from './Compare'
import { useOpenDump } from './queries'
import classes from './runs.module.css'
import { runsTexts } from './texts'

const MOST_SHOWN = 200

/** The dumps and recorded runs on disk, newest first. */
export function DumpTable({ dumps }: { dumps: DumpRecord[] }) {
  const { t } = useTranslation(runsTexts)
  const [filter, setFilter] = useState('')
  const matches = dumps
    .filter((dump) => `${dump.title}\n${dump.name}`.toLowerCase().includes(filter.trim().toLowerCase()))
    .sort((a, b) => (b.modified ?? 0) - (a.modified ?? 0))
  return (
    <>
      {dumps.length > 8 && (
        <TextInput
          aria-label={t('filter')}
          placeholder={t('filter')}
          leftSection={<IconSearch size={13} />}
          value={filter}
          onChange={(event) => setFilter(event.currentTarget.value)}
          mb={6}
          w={280}
        />
      )}
      <Table highlightOnHover className={classes['table'] ?? ''} layout="fixed">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('name')}</Table.Th>
            <Table.Th w={60}>{t('ranks')}</Table.Th>
            <Table.Th w={130}>{t('framework')}</Table.Th>
            <Table.Th w={120}>{t('modified')}</Table.Th>
            <Table.Th w={104} aria-label={t('openDump')} />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {matches.slice(0, MOST_SHOWN).map((dump) => (
            <DumpRow key={dump.name} dump={dump} />
          ))}
        </Table.Tbody>
      </Table>
      {matches.length > MOST_SHOWN && (
        <p className={classes['note']}>{t('hidden', { more: matches.length - MOST_SHOWN })}</p>
      )}
      {dumps.length > 0 && matches.length === 0 && <Notice title={t('noneMatches')} />}
    </>
  )
}

function DumpRow({ dump }: { dump: DumpRecord }) {
  const { t } = useTranslation(runsTexts)
  const openRun = useView((view) => view.openRun)
  const { mutate: open, isPending } = useOpenDump()
  const isOpen = typeof dump.session === 'string'
  return (
    <Table.Tr data-testid="dump-row" data-name={dump.name}>
      <Table.Td className={classes['name'] ?? ''}>
        <div className={classes['line']} title={dump.title}>
          {dump.title}
        </div>
        {dump.title !== dump.name && <div className={classes['note']}>{dump.name}</div>}
        {dump.problem && (
          <div className={`${classes['problem'] ?? ''} ${classes['short'] ?? ''}`} title={dump.problem}>
            <IconAlertTriangle size={12} aria-hidden /> {dump.problem}
          </div>
        )}
      </Table.Td>
      <Table.Td className={classes['number'] ?? ''}>{dump.ranks.length}</Table.Td>
      <Table.Td className={classes['line'] ?? ''} title={`${dump.framework} ${dump.framework_version}`}>
        {dump.framework} {dump.framework_version}
      </Table.Td>
      <Table.Td title={typeof dump.modified === 'number' ? moment(dump.modified) : ''}>
        {typeof dump.modified === 'number' ? ago(dump.modified) : '–'}
      </Table.Td>
      <Table.Td>
        <div className={classes['buttons']}>
          <Button
            size="compact-xs"
            variant={isOpen ? 'filled' : 'default'}
            loading={isPending}
            disabled={dump.problem !== ''}
            onClick={() => (isOpen ? openRun(dump.session ?? '') : open(dump.name))}
          >
            {t(isOpen ? 'show' : 'openDump')}
          </Button>
          <Compare
            name={dump.title}
            isOff={dump.problem !== ''}
            compare={() =>
              isOpen
                ? compareRun(dump.session ?? '')
                : open(dump.name, { onSuccess: (session) => compareRun(session.id) })
            }
          />
        </div>
      </Table.Td>
    </Table.Tr>
  )
}
