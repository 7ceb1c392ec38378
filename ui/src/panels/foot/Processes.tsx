import { Popover, Table, UnstyledButton } from '@mantine/core'
import { IconServer2 } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { RankRecord } from '~/api/types'
import { StateBadge } from '~/parts/StateBadge'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import classes from './foot.module.css'
import { footTexts } from './texts'

/** The network address, process and device of the selected rank; a click lists all ranks. */
export function Processes() {
  const { t } = useTranslation(footTexts)
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const [isOpen, setOpen] = useState(false)
  const ranks = session?.id === run ? session.ranks : []
  const selected = ranks.find((other) => other.rank === rank) ?? ranks[0]
  if (!selected) return null
  const facts = [
    selected.address,
    typeof selected.process_id === 'number' ? t('process', { id: selected.process_id }) : '',
    deviceOf(selected, session?.backend ?? ''),
    ranks.length > 1 ? t('more', { count: ranks.length }) : '',
  ].filter(Boolean)
  return (
    <Popover opened={isOpen} onChange={setOpen} position="top-start" shadow="md">
      <Popover.Target>
        <UnstyledButton
          className={classes['process'] ?? ''}
          title={t('about')}
          data-testid="process"
          onClick={() => setOpen(!isOpen)}
        >
          <IconServer2 size={13} aria-hidden />
          <span>{facts.join(' · ') || t('unknown')}</span>
        </UnstyledButton>
      </Popover.Target>
      <Popover.Dropdown className={classes['ranks'] ?? ''} data-testid="processes">
        <Table withRowBorders={false} verticalSpacing={2} aria-label={t('processes')}>
          <Table.Thead>
            <Table.Tr>
              {(['rank', 'state', 'address', 'processId', 'device', 'seen'] as const).map((column) => (
                <Table.Th key={column}>{t(column)}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {ranks.map((record) => (
              <Table.Tr key={record.rank} aria-current={record === selected}>
                <Table.Td>{record.rank}</Table.Td>
                <Table.Td>
                  <StateBadge state={record.state} message={record.message} />
                </Table.Td>
                <Table.Td className="mono">{record.address || '–'}</Table.Td>
                <Table.Td className="mono">{record.process_id ?? '–'}</Table.Td>
                <Table.Td>{deviceOf(record, session?.backend ?? '') || '–'}</Table.Td>
                <Table.Td title={typeof record.last_seen === 'number' ? moment(record.last_seen) : ''}>
                  {typeof record.last_seen === 'number' ? ago(record.last_seen) : '–'}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Popover.Dropdown>
    </Popover>
  )
}

/** Return the device, with the backend's name if the process reported only its number. */
function deviceOf(rank: RankRecord, backend: string): string {
  const { device } = rank
  return !device || /^\d+$/.test(device) ? [backend, device].filter(Boolean).join(' ') : device
}
