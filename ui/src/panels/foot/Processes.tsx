import { Popover, Table, UnstyledButton } from '@mantine/core'
import { IconServer2 } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { RankRecord } from '~/api/types'
import { StateBadge } from '~/parts/StateBadge'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import classes from './foot.module.css'
import { footTexts } from './texts'

/** Where the rank that is looked at runs: network address, process and device; a click lists all ranks. */
export function Processes() {
  const { t } = useTranslation(footTexts)
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const [isOpen, setOpen] = useState(false)
  const ranks = session?.id === run ? session.ranks : []
  const own = ranks.find((one) => one.rank === rank) ?? ranks[0]
  if (!own) return null
  const facts = [
    own.address,
    typeof own.process_id === 'number' ? t('process', { id: own.process_id }) : '',
    deviceOf(own, session?.backend ?? ''),
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
            {ranks.map((one) => (
              <Table.Tr key={one.rank} aria-current={one === own}>
                <Table.Td>{one.rank}</Table.Td>
                <Table.Td>
                  <StateBadge state={one.state} message={one.message} />
                </Table.Td>
                <Table.Td className="mono">{one.address || '–'}</Table.Td>
                <Table.Td className="mono">{one.process_id ?? '–'}</Table.Td>
                <Table.Td>{deviceOf(one, session?.backend ?? '') || '–'}</Table.Td>
                <Table.Td title={typeof one.last_seen === 'number' ? moment(one.last_seen) : ''}>
                  {typeof one.last_seen === 'number' ? ago(one.last_seen) : '–'}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Popover.Dropdown>
    </Popover>
  )
}

/** The kind of device with its number, where the process told more than the kind. */
function deviceOf(rank: RankRecord, backend: string): string {
  const { device } = rank
  return !device || /^\d+$/.test(device) ? [backend, device].filter(Boolean).join(' ') : device
}
